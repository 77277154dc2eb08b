"""What is beside a plan, as text: larger machines, what was rejected and why, how to run it."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cli.plan_exposure import exposure_text
from tandem.cli.plan_robustness import robustness_text
from tandem.cli.plan_text import is_job, throughput
from tandem.cli.plan_words import described
from tandem.planner.answer import Answer, PolicyResult, useless_cohorts
from tandem.planner.option import Option
from tandem.planner.search.simplicity import drawback
from tandem.spec.units import MIB, format_duration, format_figure

if TYPE_CHECKING:
    from tandem.planner.offline.sensitivity import BlockSensitivity
    from tandem.planner.sensitivity import Sensitivity

_FLAT = 0.005
"""Relative differences below this are not worth a word."""
_LEAST_SHOWN = 0.0005
"""Those below it come to 0.0%."""


def beside_text(
    model: str, answer: Answer, flags: Sequence[str], output: Path | None
) -> Iterator[str]:
    """What is known beside a plan, and how to run it; below the plan.

    Args:
        flags: of the engine, that the plan was made for beside what it decides.
        output: where the plan was written.
    """
    if answer.ceiling is not None:
        yield _ceiling(answer, answer.ceiling.tokens_per_s)
    yield from _more(answer)
    if answer.exposure is not None:
        yield from exposure_text(answer.exposure, _compared_by(answer))
    if answer.alternatives:
        yield ""
        yield f"Rejected{_basis(answer)}"
        for option in answer.alternatives:
            yield f"  {described(answer.question, option)}"
            yield f"    {_why(answer, option)}"
    elif answer.question.host_only:
        yield (
            "Rejected: no other kind of plan; the host alone differs in how many requests run at "
            "once, and in how many layers are on disk"
        )
    if answer.policies:
        yield ""
        yield from _policies(answer)
    if answer.robustness is not None:
        yield ""
        yield from robustness_text(
            answer.robustness, lambda option: described(answer.question, option)
        )
    yield ""
    if answer.chosen.candidate.experts:
        yield (
            "Experts are taken to be used alike. By counts (--expert-hits), an engine without a "
            "plan keeps those that are used most."
        )
    yield from _command(model, answer, flags, output)


def _ceiling(answer: Answer, most: float) -> str:
    """How much a better plan in steps of the same size could still bring, as long as all places
    are taken by requests out of step. A job whose requests are in step may be faster than that.
    """
    plan = "plan" if answer.question.tpot_bound_s is None else "plan that keeps the bound"
    if answer.chosen.candidate.step_tokens:
        plan += " in such steps"
    elif len(answer.question.steps) > 1:
        plan += f" in steps of {answer.plan.max_num_batched_tokens} tokens"
    rate = answer.chosen.prediction.rates.tokens_per_s
    taken = f"Makes {format_figure(rate)} tokens/s with all places taken; no "
    taken = "" if answer.arrivals is None else taken
    reached = f"this one reaches {rate / most:.0%} of it"
    job = is_job(answer)
    if job and answer.job_tokens_per_s > most:
        reached += ", and more over the job, whose requests are in step"
    steady = " steady" * job
    return f"{taken or 'No '}{plan} exceeds {format_figure(most)} tokens/s{steady}; {reached}"


def _more(answer: Answer) -> Iterator[str]:
    """What larger machines would do."""
    if answer.sensitivities:
        yield f"With more{_basis(answer)}{_gained_over(answer)}"
    found = ((entry, _placement(answer, entry.option)) for entry in answer.sensitivities)
    yield from sensitivity_lines(found, _placement(answer, answer.chosen))


def _gained_over(answer: Answer) -> str:
    """Behind a heading: what gains are over, if that is not the plan, which was chosen among those
    about as fast since it is simpler.
    """
    rate = format_figure(answer.sensitivities[0].base.tokens_per_s)
    if rate == format_figure(answer.chosen.tokens_per_s):
        return ""
    return f"; gains are over the {rate} of the fastest plan known for this machine"


def _placement(answer: Answer, option: Option) -> str:
    weights = option.candidate.elsewhere.describe(answer.question.model.num_layers)
    return weights if answer.question.host_only else f"{option.candidate.strategy}: {weights}"


def sensitivity_lines(
    found: "Iterable[tuple[Sensitivity | BlockSensitivity, str]]", here: str
) -> Iterator[str]:
    """What larger machines would bring, and by which placement, if that is another one.

    Args:
        found: each with its placement in words.
        here: the placement on this machine.
    """
    for entry, placement in found:
        effect = f"{format_figure(entry.option.tokens_per_s)} tokens/s ({entry.gain:+.1%})"
        some = entry.gain >= _FLAT
        if not some:  # nobody loses by what need not be used
            effect = "no gain" if entry.gain <= -_FLAT else "no difference"
        yield f"  {entry.change:<24}{effect}"
        if some and placement != here:
            yield f"    then {placement}"


def _why(answer: Answer, option: Option) -> str:
    """Numbers, and what limits it; of one that is slower, that comes before all else."""
    name, share = option.prediction.bottleneck
    loss = 1 - option.tokens_per_s / answer.chosen.tokens_per_s
    how = f"{loss:.1%} less"
    if loss < _LEAST_SHOWN:
        how = f"but {drawback(option, answer.chosen)}"
    if loss <= -_LEAST_SHOWN:
        how = f"{-loss:.1%} more, {how}"
    return f"{format_figure(option.tokens_per_s)} tokens/s, {how}: {name} busy {share:.0%}"


def _policies(answer: Answer) -> Iterator[str]:
    yield f"Policies{_basis(answer)}"
    for result in answer.policies:
        yield f"  {result.policy.name:<16}{_of_policy(answer, result)}"


def _of_policy(answer: Answer, result: PolicyResult) -> str:
    """What it achieves, and what it comes to: policies that differ often choose the same."""
    option, question = result.option, answer.question
    if option is not None:
        rows, rate = option.candidate.rows, format_figure(option.tokens_per_s)
        tpot = f"{format_duration(option.seen.worst_tpot_s)} per token  "
        if not question.lengths.later_tokens:
            tpot = ""
        how = _placement(answer, option)
        if option == answer.chosen and result.policy.name != answer.policy.name:
            how = f"{option.candidate.strategy}, the plan of '{answer.policy.name}'"
        return f"{rate:>8} tokens/s  {tpot}{rows} at once  {how}"
    if why := useless_cohorts(question, result.policy):
        return f"in cohorts, which are {why}"
    bounded = question.tpot_bound_s is not None
    return "does not fit" + (", or not within the bound" if bounded else "")


def _command(
    model: str, answer: Answer, flags: Sequence[str], output: Path | None
) -> Iterator[str]:
    """Flags where they say it all; homes of layers or embeddings, waits for cohorts, and shares of
    requests that lie in both tiers need the plan's file: engines keep embeddings where layers
    are, if all of these are resident.
    """
    chosen = answer.chosen.candidate
    placed = chosen.elsewhere.not_resident or chosen.embedding
    if output is None and (placed or chosen.has_cohorts or chosen.device_share):
        yield (
            "Run it on that machine: add --output FILE here, and then "
            f"`{shlex.join(['tandem', 'serve', model])} --plan FILE`"
        )
        return
    yield "Run it on that machine (the model by its directory or hub id):"
    if output is not None:
        words = ["tandem", "serve", model, "--plan", str(output)]
    else:
        words = ["tandem", "serve", model, *_plan_flags(answer), *flags]
        if answer.cpu_memory_bytes is not None and "--cpu-memory" not in flags:
            words += ["--cpu-memory", f"{-(-answer.cpu_memory_bytes // MIB)}MiB"]
    yield "  " + shlex.join(words)


def _plan_flags(answer: Answer) -> Iterator[str]:
    plan = answer.plan
    if answer.question.host_only:
        yield from ("--accelerator", "none")
    yield from ("--strategy", plan.strategy)
    if plan.kv_placement != "auto":
        yield from ("--kv-placement", plan.kv_placement)
    if plan.max_host_seqs:
        yield from ("--max-host-seqs", str(plan.max_host_seqs))
    yield from ("--max-num-seqs", str(plan.max_num_seqs))
    yield from ("--max-num-batched-tokens", str(plan.max_num_batched_tokens))
    yield from ("--max-model-len", str(plan.max_model_len))


def _basis(answer: Answer) -> str:
    """Behind a heading: what plans are compared by, if that has to be said."""
    when, rate = _compared_by(answer), format_figure(answer.chosen.tokens_per_s)
    return f" ({when}, where this plan makes {rate} tokens/s)" if when else ""


def _compared_by(answer: Answer) -> str:
    """What plans are compared by, where that is not the throughput as it is shown."""
    rate = answer.chosen.tokens_per_s
    if format_figure(rate) == format_figure(throughput(answer)):
        return ""
    return "of the job" if answer.arrivals is None else "with all places taken"
