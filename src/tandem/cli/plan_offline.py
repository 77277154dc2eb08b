"""`tandem plan --offline`: a plan for a batch job where nobody waits for a single answer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tandem.cli.folded import print_folded
from tandem.cli.plan_beside import sensitivity_lines
from tandem.cli.plan_exposure import exposure_json, exposure_text
from tandem.cli.plan_gantt import cycle_json, gantt_text
from tandem.cli.plan_json import robustness_json
from tandem.cli.plan_robustness import robustness_text
from tandem.cli.plan_text import question_text
from tandem.plan.offline import TierBudget
from tandem.planner.cycle import Cycle
from tandem.planner.fluid.virtual_time import SweepTime
from tandem.planner.offline.answer import OfflineAnswer
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.own_split import OwnSplit
from tandem.planner.offline.rates import BlockRates, Phase
from tandem.spec.errors import ConfigError
from tandem.spec.parameters import num_parameters
from tandem.spec.units import format_duration, format_figure, format_size
from tandem.spec.workload import Workload

FORMAT = 1
_WIDTH = 40
_NOTABLE = 0.01
_NOT_WEIGHED = "attention's maps on the CPU without columns of MLPs, or some of them alone"


def refuse_online_flags(**given: object) -> None:
    """What an offline plan has no use for.

    Raises:
        ConfigError: some of it was given; names the flags.
    """
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if named:
        raise ConfigError(
            f"{' and '.join(named)} cannot be used with --offline; leave one or the other out",
            param="offline",
        )


class OfflinePrinting:
    """Prints an answer: a plan as soon as it is found, then what is beside it; or one object.

    Args:
        basis: which numbers are measured and which assumed.
    """

    def __init__(self, model: str, workload: Workload, basis: Sequence[str]) -> None:
        self._model, self._workload, self._basis = model, workload, basis

    def plan(self, found: OfflineAnswer) -> None:
        """It is found."""
        print_folded(offline_plan_text(self._model, self._workload, found, self._basis))

    def beside(self, found: OfflineAnswer, output: Path | None, cycle: Cycle | None) -> None:
        """All the rest is known.

        Args:
            output: file that the plan has been written to.
            cycle: to be shown as well.
        """
        print_folded(offline_beside_text(self._model, found, output))
        if cycle is not None:
            print_folded(["", *gantt_text(cycle, "One pass over a block")])

    def whole(self, found: OfflineAnswer, cycle: Cycle | None) -> None:
        """All of it, as one object."""
        drawn = {} if cycle is None else {"decode_cycle": cycle_json(cycle)}
        given = offline_json(self._model, self._workload, found, self._basis)
        print(json.dumps({**given, **drawn}))


def offline_plan_text(
    model: str, workload: Workload, found: OfflineAnswer, basis: Sequence[str]
) -> Iterator[str]:
    """What was asked, and the plan: all that is known of it before anything beside it is.

    Args:
        basis: which numbers are measured and which assumed.
    """
    question = found.question
    yield from question_text(model, workload, question)
    if question.lengths.duration_s:
        yield "note: an offline job has all requests at once; times of arrival are ignored"
    yield ""
    yield f"Best: {found.chosen.candidate.describe(question.model.num_layers)}"
    yield f"  {found.recomputation}"
    if found.split is not None:
        yield f"  {found.split}"
    yield ""
    yield from _tier("accelerator", found.plan.accelerator)
    yield from _tier("host", found.plan.host)
    yield ""
    yield from basis
    yield from _rates(found)
    if found.threads is not None:
        yield f"  CPU threads            {found.threads}"
    yield ""
    yield from _limits(found.chosen)


def offline_beside_text(model: str, found: OfflineAnswer, output: Path | None) -> Iterator[str]:
    """What is known beside a plan, and how to run it; below the plan.

    Args:
        output: where the plan was written.
    """
    if found.sensitivities:
        yield "With more"
    layers = found.question.model.num_layers
    larger = ((entry, entry.option.candidate.describe(layers)) for entry in found.sensitivities)
    yield from sensitivity_lines(larger, found.chosen.candidate.describe(layers))
    if found.exposure is not None:
        yield from exposure_text(found.exposure)
    if found.alternatives:
        yield ""
        yield "Rejected"
        yield from _rejected(found)
    if found.policies:
        yield ""
        yield from _policies(found)
    if found.robustness is not None:
        yield ""
        yield from robustness_text(
            found.robustness,
            lambda option: option.candidate.describe(found.question.model.num_layers),
        )
    yield ""
    yield f"Not weighed: {_NOT_WEIGHED}."
    file = "FILE" if output is None else str(output)
    first = "" if output is not None else "--output FILE writes it; "
    yield f"Run it: {first}tandem batch {model} -i REQUESTS -o RESULTS --plan {file}"


def _tier(name: str, budget: TierBudget) -> Iterator[str]:
    parts = (
        ("█", "weights", budget.weights_bytes),
        ("▒", "KV", budget.kv_bytes),
        ("░", "slots", budget.slot_bytes),
        ("▓", "workspace", budget.workspace_bytes),
    )
    bar, filled = "", 0.0
    for mark, _, size in parts:
        filled += size / budget.capacity_bytes * _WIDTH if budget.capacity_bytes else 0
        bar += mark * max(round(filled) - len(bar), 1 if size else 0)
    yield f"{name:<12}{bar[:_WIDTH]:·<{_WIDTH}}  {format_size(budget.capacity_bytes)}"
    named = [f"{mark} {what} {format_size(size)}" for mark, what, size in parts if size]
    if budget.pinned_bytes:
        named.append(f"{format_size(budget.pinned_bytes)} of it pinned")
    yield f"{'':<12}{'  '.join([*named, f'· free {format_size(budget.free_bytes)}'])}"


def _rates(found: OfflineAnswer) -> Iterator[str]:
    rates, lengths = found.chosen.prediction.rates, found.question.lengths
    most = found.chosen.prediction.bound_tokens_per_s
    reached = rates.tokens_per_s / most
    yield (
        f"  throughput             {format_figure(rates.tokens_per_s)} tokens/s, {reached:.0%} of "
        "what this placement could reach at most"
    )
    yield (
        f"  a block                {found.plan.block_rows} requests in "
        f"{format_duration(rates.block_s)}: prompts {format_duration(rates.prefill_s)}, then "
        f"{format_duration(rates.pass_s)} per token of all"
    )
    blocks = "1 block" if rates.blocks == 1 else f"{rates.blocks} blocks"
    yield f"  all {lengths.requests} requests{'':<6}".ljust(25) + (
        f"{format_duration(rates.job_s)} in {blocks}{_tail(rates)}"
    )


def _tail(rates: BlockRates) -> str:
    """What is notable of it."""
    if rates.tail_s < _NOTABLE * rates.job_s:
        return ""
    return f", {format_duration(rates.tail_s)} of it for requests longer than the mean"


def _limits(option: BlockOption) -> Iterator[str]:
    prediction = option.prediction
    for phase, what in ((prediction.prompts, "Prompts"), (prediction.tokens, "Tokens after them")):
        if not phase.share:
            continue
        name, share = phase.bottleneck
        waits = "" if share > 0.9 else "; the rest is waiting for one another"
        yield f"{what}: {phase.share:.0%} of the time, limited by {name}, busy {share:.0%}{waits}"
        for name, share in phase.busy:
            length = round(min(1.0, share) * _WIDTH)
            yield f"  {name:<24}{'█' * length:·<{_WIDTH}} {share:4.0%}"


def _rejected(found: OfflineAnswer) -> Iterator[str]:
    for option in found.alternatives:
        loss = 1 - option.tokens_per_s / found.chosen.tokens_per_s
        name, share = option.prediction.longer.bottleneck
        yield f"  {option.candidate.describe(found.question.model.num_layers)}"
        rate = format_figure(option.tokens_per_s)
        yield f"    {rate} tokens/s, {loss:.1%} less: {name} busy {share:.0%}"


def _policies(found: OfflineAnswer) -> Iterator[str]:
    yield "Policies"
    for result in found.policies:
        line = "does not fit"
        if result.option is not None:
            option, layers = result.option, found.question.model.num_layers
            rate = format_figure(option.tokens_per_s)
            line = f"{rate:>8} tokens/s  {option.candidate.describe(layers)}"
        yield f"  {result.policy.name:<22}{line}"


def offline_json(
    model: str, workload: Workload, found: OfflineAnswer, basis: Sequence[str]
) -> dict[str, Any]:
    """All of an answer; `plan` is an `OfflinePlan` of its own format."""
    question = found.question
    return {
        "format": FORMAT,
        "offline": True,
        "model": {"name": model, "parameters": num_parameters(question.model)},
        "hardware": question.hardware.name,
        "basis": list(basis),
        "workload": {
            "name": workload.name,
            "notes": list(workload.notes),
            **question.lengths.to_object(),
        },
        "precision": str(question.precision),
        "policy": found.policy.name,
        "plan": found.plan.to_object(),
        "recomputation": found.recomputation,
        "own_split": None if found.split is None else _split(found.split),
        "prediction": _option(found, found.chosen),
        "alternatives": [_option(found, option) for option in found.alternatives],
        "sensitivities": [
            {"change": entry.change, "gain": entry.gain, **_option(found, entry.option)}
            for entry in found.sensitivities
        ],
        "exposure": None if found.exposure is None else exposure_json(found.exposure),
        "robustness": None
        if found.robustness is None
        else robustness_json(found.robustness, lambda option: _option(found, option)),
        "policies": [
            {
                "policy": result.policy.name,
                "source": result.policy.source,
                "fits": result.option is not None,
                **({} if result.option is None else _option(found, result.option)),
            }
            for result in found.policies
        ],
    }


def _split(found: OwnSplit) -> dict[str, Any]:
    return {
        "operations": [op.name for op in found.operations],
        "accelerator": [found.split.gpu.start, found.split.gpu.end],
        "layer_s": found.split.cost.latency_s,
    }


def _option(found: OfflineAnswer, option: BlockOption) -> dict[str, Any]:
    prediction = option.prediction
    return {
        "candidate": asdict(option.candidate),
        "description": option.candidate.describe(found.question.model.num_layers),
        "order": option.candidate.order,
        **asdict(prediction.rates),
        "job_s": prediction.rates.job_s,
        "bound_tokens_per_s": prediction.bound_tokens_per_s,
        "bottleneck": prediction.longer.bottleneck[0],
        "prompts": _phase(prediction.prompts, prediction.time.prefill),
        "tokens": _phase(prediction.tokens, prediction.time.decode),
    }


def _phase(phase: Phase, time: SweepTime) -> dict[str, Any]:
    return {
        "share": phase.share,
        "busy": dict(phase.busy),
        "bottleneck": phase.bottleneck[0],
        "pass": asdict(time),
    }
