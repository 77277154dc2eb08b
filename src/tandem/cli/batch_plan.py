"""`tandem batch --plan auto`: plan for the lines of a job that are left, and say what comes of it.

And without a plan: whether one is of use; with one made before: whether it is for such lines.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cli.job_question import job_machine, job_question
from tandem.cli.terminal import load_progress, tell, tell_notes
from tandem.plan.offline import TierBudget
from tandem.plan.plan_file import PlanFile
from tandem.planner.plan_file import offline_plan_file
from tandem.spec.errors import ConfigError
from tandem.spec.progress import no_progress
from tandem.spec.units import format_duration, format_figure, format_size

if TYPE_CHECKING:
    from tandem.engine.clients.client import Stats
    from tandem.jobs.batch import Batch, MakePlan
    from tandem.jobs.lengths import JobLengths
    from tandem.planner.offline.answer import OfflineAnswer
    from tandem.planner.question import Question
    from tandem.spec.config import EngineConfig

_LINES_LOOKED_AT = 256


def plan_job(job: "Batch", input_file: Path) -> None:
    """Plan for the lines that are left, tell what was planned, and have the job run by it.

    Raises:
        TandemError: there is no accelerator, or no profile of this machine, or nothing fits.
    """
    said: list[str] = []

    def begin(config: "EngineConfig") -> "MakePlan":
        machine = job_machine(config)

        def make(lengths: "JobLengths") -> PlanFile:
            workload = lengths.workload(input_file.name)
            tell_notes(workload.notes)
            question = job_question(config, machine, workload)
            found = _answer(question)
            said.extend(_summary(found))
            said.append(f"plan: {'; '.join(machine.hardware.basis)}")
            return offline_plan_file(config.model, question, found.plan, config.quantization)

        return make

    with load_progress() as progress:
        path = job.plan(begin, progress)
    for line in said:
        tell(line)
    if path is None:
        tell("no line that is left can run, so no plan was made")
    else:
        tell(f"plan: written to {path}")


def _answer(question: "Question") -> "OfflineAnswer":
    from tandem.planner.offline.answer import offline_answer

    try:
        return offline_answer(question)
    except ConfigError as error:
        raise ConfigError(
            f"--plan auto: {error.message} (--prompt and --generate are here the prompts and "
            "max_tokens of the lines)",
            param="plan",
        ) from None


def _summary(found: "OfflineAnswer") -> Iterator[str]:
    question, prediction = found.question, found.chosen.prediction
    lengths, rates = question.lengths, prediction.rates
    requests = "1 request" if lengths.requests == 1 else f"{lengths.requests:,} requests"
    yield (
        f"plan for {requests} of {lengths.prompt_tokens:.0f} tokens and up to "
        f"{lengths.generated_tokens:.0f} more in the mean: "
        f"{found.chosen.candidate.describe(question.model.num_layers)}"
    )
    tiers = (("accelerator", found.plan.accelerator), ("host", found.plan.host))
    yield f"plan: {'; '.join(f'{name}: {_parts(budget)}' for name, budget in tiers)}"
    resource, busy = prediction.longer.bottleneck
    yield (
        f"plan: at most {format_duration(rates.job_s)}, at {format_figure(rates.tokens_per_s)} "
        f"output tokens/s, limited by {resource}, busy {busy:.0%}"
    )


def _parts(budget: TierBudget) -> str:
    parts = (("weights", budget.weights_bytes), ("KV", budget.kv_bytes))
    named = " and ".join(f"{what} {format_size(size)}" for what, size in parts if size)
    return f"{named or 'nothing'} of {format_size(budget.capacity_bytes)}"


def unfitting_note(job: "Batch", config: "EngineConfig", stats: "Stats") -> str | None:
    """What to say where weights, or the KV of as many requests as may run at once, do not fit the
    accelerator, so that a plan is worth having; None: all fits, or there is no accelerator.

    Lengths are those of the first lines that are left; where no `max_tokens` bounds an output, as
    in most conversations, only the prompt is counted: few outputs fill the context.

    Args:
        stats: of an engine without a plan, `EngineStats` as plain values.
    """
    pools = [tier for tier in stats["tiers"] if tier["location"] == "device"]
    if not pools:
        return None
    weights = sum(
        row["predicted_bytes"]
        for row in stats["memory"]
        if row["location"] != "device" and row["label"] == "weights"
    )
    held_tokens = sum(pool["total_blocks"] * pool["block_size"] for pool in pools)
    lengths = job.lengths(no_progress, _LINES_LOOKED_AT)
    num_lengths, num_left = len(lengths.shapes), job.num_lines - job.counts.num_done
    num_rows = min(config.max_num_seqs, max(num_lengths, num_left))
    what = [f"{format_size(weights)} of weights"] if weights else []
    if num_rows * lengths.bounded_tokens > held_tokens * num_lengths:
        what.append(f"KV of {num_rows} requests at once")
    if not what:
        return None
    does = "do" if weights or num_rows > 1 else "does"
    return (
        f"{' and '.join(what)} {does} not fit the accelerator; --plan auto plans for the whole "
        "job's time, where nobody waits for a single answer"
    )


def too_long_note(job: "Batch", config: "EngineConfig") -> str | None:
    """What to say where lines are longer than a plan's requests, so that they will fail; None: none
    is of those looked at. These are the first that are left: to tokenize all would have a long job
    wait for minutes.

    Args:
        config: with a plan, and what it decides.
    """
    num_too_long = job.lengths(no_progress, _LINES_LOOKED_AT).num_too_long
    if not num_too_long:
        return None
    num_left = job.num_lines - job.counts.num_done
    of = f"the first {_LINES_LOOKED_AT}" if num_left > _LINES_LOOKED_AT else f"{num_left:,}"
    return (
        f"{num_too_long} of {of} lines will fail: with max_tokens they are longer than the "
        f"{config.max_model_len:,} tokens of the plan's longest request; plan for longer ones, or "
        "use --plan auto"
    )
