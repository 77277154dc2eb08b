"""`tandem batch`."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.arguments import ModelArgument, served_names
from tandem.cli.engine_flags import EngineOptions, fill_engine_for_job
from tandem.cli.flags import env_twin, list_option
from tandem.cli.job_progress import Report, describe_counts, job_progress
from tandem.cli.terminal import load_progress, tell, tell_load, tell_notes
from tandem.spec.config import AUTO_PLAN
from tandem.spec.errors import ConfigError, EngineDeadError
from tandem.spec.units import parse_limit

if TYPE_CHECKING:
    from tandem.compose import Service
    from tandem.jobs.batch import Batch, End
    from tandem.spec.config import EngineConfig

LINES_FAILED_STATUS = 3
SIGNAL_STATUS = 128


@fill_engine_for_job()
def batch(
    engine: EngineOptions,
    *,
    model: ModelArgument = "demo",
    input_file: Annotated[
        Path, typer.Option("--input-file", "-i", help="Requests, one per line.", metavar="FILE")
    ],
    output_file: Annotated[
        Path,
        typer.Option(
            "--output-file",
            "-o",
            help="Results, in the order in which they are finished; a journal lies beside it.",
            metavar="FILE",
        ),
    ],
    restart: Annotated[
        bool, typer.Option("--restart", help="Drop the output and begin anew.")
    ] = False,
    served_model_name: Annotated[
        list[str] | None,
        list_option("served_model_name", "Name of the model in requests; repeatable.", "NAME"),
    ],
    chat_template: Annotated[
        Path | None,
        typer.Option(
            help="Jinja file to use for the model's own.", envvar=env_twin("chat_template")
        ),
    ] = None,
    max_line_size: Annotated[
        str,
        typer.Option(help="Longest request.", envvar=env_twin("max_line_size"), metavar="SIZE"),
    ] = "32MiB",
    isolate_engine: Annotated[
        bool,
        typer.Option(
            help="Run the engine in a process of its own.", envvar=env_twin("isolate_engine")
        ),
    ] = True,
) -> None:
    """Answer a file of requests in the form of OpenAI's Batch API.

    The same command resumes a job that was stopped, or killed. Ctrl-C finishes what runs and stops;
    a second one stops at once. Exit status: 0 if every line was answered, 3 if some failed, in
    whichever run, 2 if the job cannot run, 130 if it was interrupted.
    """
    config = engine(model)
    _refuse_bounds(config)
    from tandem.jobs.batch import Batch
    from tandem.jobs.settings import JobSettings

    settings = JobSettings(
        input_file,
        output_file,
        served_names(served_model_name, model),
        restart,
        chat_template,
        parse_limit(max_line_size, param="max_line_size"),
        isolate_engine,
    )
    with load_progress() as progress:
        job = Batch(config, settings, progress)
    with job:
        if job.is_complete:
            tell(f"nothing to do: {output_file} is complete ({describe_counts(job.counts)})")
        else:
            _complete(job, config, input_file)
            tell(f"{output_file} is complete: {describe_counts(job.counts)}")
        if job.counts.num_failed:
            raise typer.Exit(LINES_FAILED_STATUS)


def _refuse_bounds(config: "EngineConfig") -> None:
    """A bound on first tokens is for those who wait for them; one on who waits would fail lines."""
    if config.max_num_queued_reqs is not None:
        raise ConfigError(
            f"--max-num-queued-reqs {config.max_num_queued_reqs} has no meaning for a file of "
            "requests, of which as many wait as are of use; leave it out",
            param="max_num_queued_reqs",
        )
    if config.ttft_bound is not None:
        raise ConfigError(
            "--ttft-bound has no meaning for a file of requests, which nobody waits for one by "
            "one; leave it out",
            param="ttft_bound",
        )


def _complete(job: "Batch", config: "EngineConfig", input_file: Path) -> None:
    if not job.finish_if_done():
        end = _run(job, config, input_file)
        if not end.is_done:
            _tell_stopped(job, end)


def _run(job: "Batch", config: "EngineConfig", input_file: Path) -> "End":
    if job.counts.num_done:
        tell(f"resuming: {job.counts.num_done:,} of {job.num_lines:,} lines are done")
    if config.plan == AUTO_PLAN:
        from tandem.cli.batch_plan import plan_job

        plan_job(job, input_file)
    with load_progress() as progress:
        service = job.load(progress)
    try:
        tell_load(service.description)
        if config.plan != AUTO_PLAN:
            _tell_first_lines(job, config, service)
        with job_progress() as report:
            end = _answer(job, service, report)
        _tell_end(service)
        return end
    finally:
        service.close()


def _tell_first_lines(job: "Batch", config: "EngineConfig", service: "Service") -> None:
    """What they say of the job: whether a plan is worth having, or whether the plan is for it."""
    from tandem.cli.batch_plan import too_long_note, unfitting_note

    if config.plan is None:
        note = unfitting_note(job, config, service.frontend.client.stats())
    else:
        note = too_long_note(job, config)
    if note is not None:
        tell_notes([note])


def _answer(job: "Batch", service: "Service", report: Report) -> "End":
    try:
        return job.run(service, report, _tell_draining)
    except EngineDeadError:
        _tell_progress(job)
        tell("the same command goes on from here, and first runs what ran now one line at a time")
        raise


def _tell_end(service: "Service") -> None:
    """What the engine decided while it ran, and how its parts worked beside each other."""
    from tandem.engine.describe import describe_overlap, later_notes

    with contextlib.suppress(EngineDeadError):  # what it had to answer is answered
        stats = service.frontend.client.stats()
        tell_notes(later_notes(service.description, stats))
        overlap = describe_overlap(stats)
        if overlap is not None:
            tell(overlap)


def _tell_draining(num_running: int) -> None:
    lines, them = f"{num_running:,} lines are", "them"
    if num_running == 1:
        lines, them = "1 line is", "it"
    tell(f"stopping: {lines} being answered and will be finished; Ctrl-C again drops {them}")


def _tell_stopped(job: "Batch", end: "End") -> None:
    _tell_progress(job)
    tell("the same command goes on from here")
    raise typer.Exit(SIGNAL_STATUS + (end.stopped_by or 0))


def _tell_progress(job: "Batch") -> None:
    num_done, counts = job.counts.num_done, describe_counts(job.counts)
    tell(f"stopped after {num_done:,} of {job.num_lines:,} lines: {counts}")
