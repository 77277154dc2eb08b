"""How long a job's requests are, found before any runs; needs no engine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tandem.api.named_model import NamedModel
from tandem.engine.frontend.prompts import PromptReader
from tandem.jobs.lines import Line
from tandem.jobs.prepare import prepare_answer
from tandem.jobs.request_line import LineError, read_custom_id, read_fields, read_request
from tandem.spec.errors import RequestError
from tandem.spec.workload import RequestShape, Workload

_MODEL = "model"


@dataclass(frozen=True, slots=True)
class JobLengths:
    """What the lines of a job come to.

    Attributes:
        shapes: of every sequence, several samples of a prompt each by itself; tokens generated are
            the most that the request allows.
        num_open: of these, whose request has no `max_tokens`, so that they may fill the context.
        num_left_out: lines that are no request, or can never run.
    """

    shapes: tuple[RequestShape, ...]
    num_open: int = 0
    num_left_out: int = 0

    def workload(self, name: str) -> Workload:
        """As planners take requests, all of them there at once.

        Args:
            name: of the file.

        Raises:
            ConfigError: there are none.
        """
        notes = [f"{name}: tokens generated are counted as max_tokens allows, at most"]
        if self.num_open:
            notes.append(
                f"{name}: {self.num_open:,} of {len(self.shapes):,} requests have no max_tokens "
                "and may fill the context, for which room is kept: give each line its own, or "
                "--max-model-len"
            )
        if self.num_left_out:
            notes.append(
                f"{name}: lines that are no request, or too long: {self.num_left_out:,}, left out"
            )
        return Workload(name, self.shapes, tuple(notes))


class LengthReader:
    """Reads lines as a job does, but for what only concerns their answers.

    Args:
        reader: with the model's tokenizer; the most tokens of a request are its.
        names: by which lines may ask for the model; None: they may name any.
    """

    def __init__(self, reader: PromptReader, names: tuple[str, ...] | None) -> None:
        self._model = NamedModel(reader, names or (_MODEL,))
        self._names_any = names is None

    def read(self, line: Line) -> Iterator[tuple[RequestShape, bool]]:
        """Each sequence that a line asks for, and whether it may fill the context.

        Raises:
            LineError, ApiError, RequestError: it is no request, or can never be served.
        """
        if line.data is None:
            raise LineError("line_too_long", "the line is too long; cut it")
        fields = read_fields(line.data)
        request = read_request(line.start.number, read_custom_id(fields), fields)
        if self._names_any:
            request.body.pop("model", None)
        most = self._model.reader.max_model_len
        for job in prepare_answer(self._model, request, seed=0).jobs:
            prompt, limit = len(job.prompt.token_ids), job.sampling.max_tokens
            generated = most - prompt if limit is None else limit
            if prompt + max(1, generated, job.sampling.min_tokens) > most:
                raise RequestError(
                    f"{prompt} prompt tokens and {max(1, generated)} output tokens are more than "
                    f"the {most} that a request may have; shorten the prompt or lower max_tokens"
                )
            shape = RequestShape(prompt, max(1, generated))
            for _ in range(job.num_samples):
                yield shape, limit is None


def read_lengths(lines: Iterable[Line], reader: LengthReader) -> JobLengths:
    """Of all lines that can run. Equal shapes are one object, so that many lines take little."""
    known: dict[RequestShape, RequestShape] = {}
    shapes: list[RequestShape] = []
    num_open = num_left_out = 0
    for line in lines:
        try:
            found = list(reader.read(line))
        except Exception:  # noqa: BLE001 (its result will say what it is)
            num_left_out += 1
            continue
        shapes += (known.setdefault(shape, shape) for shape, _ in found)
        num_open += sum(is_open for _, is_open in found)
    return JobLengths(tuple(shapes), num_open, num_left_out)
