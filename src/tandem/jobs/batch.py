"""A job from its files to its end."""

import asyncio
import hashlib
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType

from tandem.compose import Service, open_in_child, open_in_process, open_service
from tandem.engine.frontend.prompts import PromptReader
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.jobs.answerer import FrontendAnswerer
from tandem.jobs.counts import Counts
from tandem.jobs.input_file import InputFacts, InputFile
from tandem.jobs.lengths import JobLengths, LengthReader, read_lengths
from tandem.jobs.lines import Line
from tandem.jobs.pace import Pace, Status
from tandem.jobs.record import journal_path, open_record
from tandem.jobs.runner import JobRunner
from tandem.jobs.settings import JobSettings, answer_options
from tandem.jobs.window import Window
from tandem.models.config import read_model_spec
from tandem.models.model_fingerprint import fingerprint_model
from tandem.models.resolve import resolve_model
from tandem.plan.plan_file import PlanFile, write_plan
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.progress import Progress

MakePlan = Callable[[JobLengths], PlanFile]
"""From how long the lines are that are left."""

# Running requests, and as many that wait behind them.
_WINDOW_FACTOR = 2


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended.

    Attributes:
        is_done: every line has its result.
        stopped_by: what ended it before, if something did.
    """

    is_done: bool
    stopped_by: signal.Signals | None = None


class Batch:
    """A job whose files are open; close it.

    Args:
        progress: called while the input is read for the first time.

    Raises:
        TandemError: the files do not fit together, or belong to another job.
    """

    def __init__(self, config: EngineConfig, settings: JobSettings, progress: Progress) -> None:
        # The window bounds what waits; refusing would fail lines for nothing.
        self._config = replace(config, max_num_queued_reqs=None)
        self._settings = settings
        self._model_directory = resolve_model(config.model)
        self._new_plan: Path | None = None
        self._owned = ExitStack()
        with ExitStack() as opened:
            self._input = InputFile(settings.input_file, settings.max_line_bytes)
            opened.callback(self._input.close)
            self._check_files()
            self._facts = self._input.scan(progress)
            identity = _identity(self._facts, self._model_directory, self._config, settings)
            self._record = opened.enter_context(
                open_record(
                    settings.output_file,
                    identity,
                    lambda: secrets.token_hex(8),
                    time.monotonic,
                    settings.restart,
                )
            )
            self._owned = opened.pop_all()

    @property
    def is_complete(self) -> bool:
        """An earlier run did everything."""
        return self._record.is_complete

    @property
    def counts(self) -> Counts:
        """What is done."""
        return self._record.counts

    @property
    def num_lines(self) -> int:
        """Lines of the input that are not blank."""
        return self._facts.num_lines

    def finish_if_done(self) -> bool:
        """Complete the job if no line is left: then no model is needed."""
        is_done = self.counts.num_done == self.num_lines
        if is_done:
            self._record.commit(is_complete=True)
        return is_done

    def lengths(self, progress: Progress, most_lines: int | None = None) -> JobLengths:
        """How long the requests are that are left, or those of so many lines.

        Raises:
            TandemError: the tokenizer cannot be loaded, or the input was changed.
        """
        spec = read_model_spec(self._model_directory)
        tokenizer = load_tokenizer(self._model_directory, self._settings.chat_template)
        most = self._config.max_model_len or spec.max_positions
        reader = PromptReader(tokenizer, spec.vocab_size, most)
        names = self._settings.served_model_names
        lines = islice(self._lines_left(progress), most_lines)
        return read_lengths(lines, LengthReader(reader, names))

    def plan(self, begin: Callable[[EngineConfig], MakePlan], progress: Progress) -> Path | None:
        """Have the lines that are left run as is planned for them. The plan lies beside the output,
        in the file that is returned; None if no line is left that can run.

        Args:
            begin: called before lengths are counted, with the configuration of an engine without a
                plan; makes the plan when they are.

        Raises:
            TandemError: there is no plan; a job that begins has left no files then.
        """
        unplanned = replace(self._config, plan=None)
        path = plan_path(self._settings.output_file)
        try:
            make = begin(unplanned)
            lengths = self.lengths(progress)
            if not lengths.shapes:
                self._config = unplanned
                return None
            planned = make(lengths)
            is_new = not path.exists()
            write_plan(path, planned, "output_file")
            self._new_plan = path if is_new else None
        except BaseException:
            self._discard()
            raise
        self._config = replace(unplanned, plan=str(path), **planned.settings)
        return path

    def _lines_left(self, progress: Progress) -> Iterator[Line]:
        for line in self._input.lines(self._record.mark):
            if not self._record.is_finished(line.start.number):
                yield line
            progress("counting tokens", line.end.offset, self._facts.size_bytes)

    def load(self, progress: Progress) -> Service:
        """The engine that this job needs; the caller closes it.

        Raises:
            TandemError: it cannot be loaded; a job that begins has left no files then.
        """
        open_client = open_in_child if self._settings.isolate_engine else open_in_process
        try:
            return open_service(self._config, open_client, progress, self._settings.chat_template)
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        self._record.discard()
        if self._new_plan is not None and not self._settings.output_file.exists():
            self._new_plan.unlink(missing_ok=True)

    def run(
        self,
        service: Service,
        report: Callable[[Status], None],
        tell_draining: Callable[[int], None],
    ) -> End:
        """Answer what is left. An interrupt drains, a second one or a termination stops.

        Args:
            tell_draining: called with the number of lines that are finished after an interrupt.

        Raises:
            TandemError: the job cannot go on; what was finished is kept.
        """
        return asyncio.run(self._run(service, report, tell_draining))

    async def _run(
        self,
        service: Service,
        report: Callable[[Status], None],
        tell_draining: Callable[[int], None],
    ) -> End:
        pace = Pace(self.num_lines, self.counts)
        answerer = FrontendAnswerer(
            service.frontend, self._settings.served_model_names, self._config.seed
        )
        runner = JobRunner(
            self._record,
            self._input.lines(self._record.mark),
            answerer,
            _window(service, self._config),
            lambda: report(pace.status(self.counts, answerer.num_running_tokens)),
        )
        stopped_by = _obey_signals(runner, tell_draining)
        is_done = await runner.run()
        return End(is_done, None if is_done else stopped_by())

    def _check_files(self) -> None:
        output = self._settings.output_file
        if any(map(self._input.is_same_file, (output, journal_path(output), plan_path(output)))):
            raise ConfigError(
                "--input-file and --output-file are the same file; name another --output-file",
                param="output_file",
            )
        plan = self._config.plan
        goes_on = journal_path(output).exists() and not self._settings.restart
        if plan is not None and goes_on and _is_same_file(Path(plan), plan_path(output)):
            raise ConfigError(
                f"--plan {plan} is what --plan auto made of this job's lines that were left then; "
                "resume with --plan auto, which plans for those that are left now",
                param="plan",
            )

    def close(self) -> None:
        """Close the files; another run may take them then."""
        self._owned.close()

    def __enter__(self) -> "Batch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _is_same_file(one: Path, other: Path) -> bool:
    """True if both lead to one file; False where either leads to none."""
    return one.exists() and other.exists() and one.samefile(other)


def plan_path(output: Path) -> Path:
    """Where the plan of a job lies that was planned for as it began."""
    return output.with_name(output.name + ".plan.json")


def _identity(
    facts: InputFacts, model: Path, config: EngineConfig, settings: JobSettings
) -> dict[str, str]:
    template = settings.chat_template
    try:
        template_digest = hashlib.sha256(template.read_bytes()).hexdigest() if template else ""
    except OSError as error:
        raise ConfigError(
            f"cannot read --chat-template {template}: {error.strerror}; name a readable file",
            param="chat_template",
        ) from None
    return {
        "input": f"{facts.size_bytes} bytes, SHA-256 {facts.digest}",
        "model": fingerprint_model(model),
        "--chat-template": template_digest,
        **answer_options(config, settings),
    }


def _window(service: Service, config: EngineConfig) -> Window:
    stats = service.frontend.client.stats()
    num_kv_tokens = sum(tier["total_blocks"] * tier["block_size"] for tier in stats["tiers"])
    return Window(_WINDOW_FACTOR * config.max_num_seqs, _WINDOW_FACTOR * num_kv_tokens)


def _obey_signals(
    runner: JobRunner, tell_draining: Callable[[int], None]
) -> Callable[[], signal.Signals | None]:
    received: list[signal.Signals] = []

    def obey(number: signal.Signals) -> None:
        is_first_interrupt = number == signal.SIGINT and not received
        received.append(number)
        if is_first_interrupt:
            tell_draining(runner.drain())
        else:
            runner.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, obey, number)
    return lambda: received[-1] if received else None
