"""Simulated runs as text and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tandem.cli.plan_words import described
from tandem.cli.simulate_sweep import HOST_CORES, RATES
from tandem.plan.describe import describe_plan
from tandem.planner.option import Option
from tandem.simulator.build import Planned
from tandem.simulator.latencies import QUANTILES, Percentiles
from tandem.simulator.outcome import Outcome
from tandem.spec.units import format_duration, format_figure
from tandem.spec.workload import Workload

FORMAT = 1
_WIDTH = 40
_HEADINGS = {
    None: "",
    "--rates": "requests/s",
    "--generate": "tokens out",
    HOST_CORES: "host cores",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        value: of the option that varies; None if none does.
    """

    value: float | None
    planned: Planned
    workload: Workload
    outcome: Outcome

    @property
    def plan_text(self) -> str:
        """What is run, in a line."""
        option = self.planned.option
        if option is None:
            return describe_plan(self.planned.plan, host_only=self.planned.question.host_only)
        found = described(self.planned.question, option)
        if self.planned.chooses_steps:
            found += f"; each step chosen by {self.planned.plan.strategy}"
        return found

    @property
    def option(self) -> Option | None:
        """What is predicted of it, if the plan was made here."""
        return self.planned.option

    @property
    def planned_tokens_per_s(self) -> float | None:
        """By the plan; None where it was not made here, and where steps are chosen as they come,
        which no plan is of.
        """
        chooses = self.planned.chooses_steps
        return None if self.option is None or chooses else self.option.tokens_per_s


def runs_json(
    model: str, flag: str | None, runs: Sequence[Run], basis: Sequence[str]
) -> dict[str, Any]:
    """All of the runs; `plan` is an `OnlinePlan` of its own format, and `quantiles` says of what
    shares of the requests each latency's `quantiles_s` are.

    Args:
        basis: which numbers are measured and which assumed.
    """
    return {
        "format": FORMAT,
        "model": model,
        "basis": list(basis),
        "varies": flag,
        "quantiles": QUANTILES,
        "runs": [
            {
                "value": run.value,
                "hardware": run.planned.question.hardware.name,
                "workload": run.workload.name,
                "plan": json.loads(run.planned.plan.to_json()),
                "planned_tokens_per_s": run.planned_tokens_per_s,
                **asdict(run.outcome),
            }
            for run in runs
        ],
    }


def runs_text(
    model: str, flag: str | None, runs: Sequence[Run], basis: Sequence[str]
) -> Iterator[str]:
    """The lines to print.

    Args:
        basis: which numbers are measured and which assumed.
    """
    first = runs[0]
    yield f"{model} on {first.planned.question.hardware.name}, simulated"
    lengths = first.planned.question.lengths
    if flag is None:
        yield (
            f"{first.workload.name}: {lengths.prompt_tokens:.0f} tokens in, "
            f"{lengths.generated_tokens:.0f} out in the mean"
        )
    yield from (f"note: {note}" for note in first.workload.notes)
    yield from basis
    yield from _plans(flag, runs)
    yield ""
    if flag is None:
        yield from _one(first.outcome, first)
        return
    yield from _table(_HEADINGS[flag], runs)
    yield ""
    yield from _curve(flag, runs)
    idle = [f"{run.value:g}" for run in runs if not run.outcome.busy["CPU"]]
    if flag == HOST_CORES and idle:
        yield f"with {', '.join(idle)}: the plan leaves the host's cores idle, none found is faster"


def _plans(flag: str | None, runs: Sequence[Run]) -> Iterator[str]:
    """Each with what it serves, if there are several, or if it was made for one rate of many."""
    served: dict[str, list[str]] = {}
    for run in runs:
        served.setdefault(run.plan_text, []).append(f"{run.value or 0:g}")
    for plan, values in served.items():
        of = f" for {', '.join(values)} {_HEADINGS[flag]}" if len(served) > 1 else ""
        if flag == RATES and runs[0].option is not None:
            of = f" for {max(run.value or 0 for run in runs):g} {_HEADINGS[flag]}"
        yield f"plan{of}: {plan}"


# --- one run --------------------------------------------------------------------------------------


def _one(outcome: Outcome, run: Run) -> Iterator[str]:
    yield f"{'':<24}{'p50':>10}{'p90':>10}{'p99':>10}{'mean':>10}"
    yield _latency("time to first token", outcome.ttft)
    if outcome.tpot is not None:
        yield _latency("time per output token", outcome.tpot)
    yield _latency("a whole request", outcome.latency)
    if outcome.ttft_kept is not None:
        yield f"{outcome.ttft_kept:.1%} of the first tokens came within the bound"
    yield ""
    yield (
        f"{outcome.output_tokens} tokens in {format_duration(outcome.duration_s)}: "
        f"{format_figure(outcome.tokens_per_s)} tokens/s, "
        f"{format_figure(outcome.steady_tokens_per_s)} in the middle half"
    )
    if not run.workload.duration_s and run.option is not None:
        of = " of the plan as it is" if run.planned.chooses_steps else ""
        yield f"the planner predicts {_predicted(run.option, run.planned.question.objective)}{of}"
    for name, share in outcome.busy.items():
        length = round(min(1.0, share) * _WIDTH)
        yield f"  {name:<24}{'█' * length:·<{_WIDTH}} {share:4.0%}"
    if outcome.hidden_share is not None:
        yield f"{outcome.hidden_share:.0%} of the CPU's attention ran beside the accelerator's work"
    yield (
        f"{_counted(outcome.preemptions, 'preemption')}; "
        f"{outcome.mean_running:.3g} requests under way in the mean"
    )
    yield (
        f"{_counted(outcome.steps, 'sweep')}, {outcome.skipped_steps} of them alike and not put "
        "through the scheduler"
    )


def _predicted(option: Option, objective: str) -> str:
    if objective == "latency":
        return f"{format_figure(option.tokens_per_s)} tokens/s of one request at a time"
    steady = format_figure(option.prediction.rates.tokens_per_s)
    job = format_figure(option.tokens_per_s)
    return f"{job} tokens/s over the whole job, and {steady} out of step once all run"


def _latency(name: str, values: Percentiles) -> str:
    columns = (values.p50_s, values.p90_s, values.p99_s, values.mean_s)
    return f"{name:<24}" + "".join(f"{format_duration(value):>10}" for value in columns)


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


# --- several runs ---------------------------------------------------------------------------------


def _table(heading: str, runs: Sequence[Run]) -> Iterator[str]:
    bounded = any(run.outcome.ttft_kept is not None for run in runs)
    groups = ("time to first token", "time per output token", "a whole request")
    yield f"{'':>20}" + "".join(f"{group:^28}" for group in groups)
    yield (
        f"{heading:>10}{'tokens/s':>10}"
        + f"{'p50':>10}{'p90':>9}{'p99':>9}" * len(groups)
        + f"{'accel':>7}{'CPU':>6}{'link':>6}{'preempt':>9}"
        + (f"{'in time':>9}" if bounded else "")
    )
    for run in runs:
        outcome = run.outcome
        cells = "".join(map(_cells, (outcome.ttft, outcome.tpot, outcome.latency)))
        busy, rate = outcome.busy, format_figure(outcome.tokens_per_s)
        yield (
            f"{run.value or 0:>10g}{rate:>10}{cells}{_share(busy, 'accelerator'):>7}"
            f"{_share(busy, 'CPU'):>6}{_share(busy, 'link to the accelerator'):>6}"
            f"{outcome.preemptions:>9}"
            + ("" if outcome.ttft_kept is None else f"{outcome.ttft_kept:>9.1%}")
        )


def _share(busy: Mapping[str, float], name: str) -> str:
    return f"{busy[name]:.0%}" if name in busy else "-"


def _cells(values: Percentiles | None) -> str:
    if values is None:
        return f"{'-':>10}{'-':>9}{'-':>9}"
    return (
        f"{format_duration(values.p50_s):>10}{format_duration(values.p90_s):>9}"
        f"{format_duration(values.p99_s):>9}"
    )


def _curve(flag: str, runs: Sequence[Run]) -> Iterator[str]:
    """Bars: latency over load, or throughput over what else varies."""
    if flag == RATES:
        values = [run.outcome.latency.p50_s for run in runs]
        yield "a whole request, p50"
        shown = [format_duration(value) for value in values]
    else:
        values = [run.outcome.tokens_per_s for run in runs]
        yield "tokens/s"
        shown = [format_figure(value) for value in values]
    for run, value, text in zip(runs, values, shown, strict=True):
        bar = "█" * max(1, round(value / max(values) * _WIDTH))
        yield f"{run.value or 0:>10g} {bar} {text}"
