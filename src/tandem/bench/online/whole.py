"""Whole models on the papers' machines, in the simulator alone: nothing is executed.

The planner and the simulator are told the machine as it is described, so that what differs between
them is what means leave out. All figures carry the word `simulated`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tandem.bench.online.arrivals import Arrivals, different_plans
from tandem.bench.online.bed import question_of
from tandem.bench.online.cell import Load, OnlineCell, make_cell
from tandem.bench.online.plans import Planned
from tandem.bench.online.simulated import simulated, steady_tokens_per_s
from tandem.bench.online.suite import AUTO, BASELINE, OnlineBench
from tandem.bench.records import BenchRow
from tandem.models.catalogue import plannable_spec
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.simulator.outcome import Outcome
from tandem.simulator.simulate import simulate
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import pair_hardware

_MACHINES = (
    ("t4", "g4dn.4xlarge", "llama-2-7b"),  # NEO
    ("a10g", "g5.4xlarge", "llama-3.1-8b"),
    ("t4", "apex-t4", "llama-2-7b"),  # APEX
    ("a10", "apex-a10", "llama-3.1-8b"),
)
"""Accelerators, hosts and models."""


@dataclass(frozen=True, slots=True)
class WholeOutcome:
    """What the simulator says of a cell.

    Attributes:
        tokens_per_s: kept full, by policy.
        ceiling: what no plan exceeds, nor what comes of it, by a linear programme.
        points: share of the requests per second that the accelerator alone completes, policies with
            the same plan, and what their requests see.
    """

    cell: OnlineCell
    planned: tuple[Planned, ...]
    tokens_per_s: Mapping[str, float]
    ceiling: float
    points: tuple[tuple[float, tuple[str, ...], Outcome], ...]


def paper_cells(loads: Sequence[Load]) -> Iterator[OnlineCell]:
    """NEO's and APEX's machines, with the models that they run there."""
    for accelerator, host, model in _MACHINES:
        for load in loads:
            layers = plannable_spec(model).num_layers
            cell = make_cell(accelerator, model, layers, load, Perturbation())
            yield replace(cell, hardware=pair_hardware(accelerator, host))


def run_whole(
    bench: OnlineBench, cells: Sequence[OnlineCell], report: Callable[[str], None]
) -> list[WholeOutcome]:
    """Every cell, one after the other.

    Raises:
        ConfigError: an unknown policy, or a cell that nothing fits.
    """
    return [_run_cell(bench, cell, report) for cell in cells]


def _run_cell(bench: OnlineBench, cell: OnlineCell, report: Callable[[str], None]) -> WholeOutcome:
    report(str(cell))
    question = question_of(cell, cell.hardware, cell.load.workload())
    planned = bench.planned(question, cell)
    if planned[0].plan is None:
        raise ConfigError(f"{cell}: nothing fits", param="hardware")
    plans = different_plans(planned)
    rates: dict[str, float] = {}
    for policies, each in plans:
        report(f"simulating {', '.join(policies)}")
        rates |= dict.fromkeys(policies, steady_tokens_per_s(each, cell.load, bench.window_s))
    full = rates.get(BASELINE, rates[AUTO]) / cell.load.generated_tokens
    ceilings = Ceilings(question, Footprint(question), POLICIES[AUTO], executed=True)
    ceiling = ceilings.ceiling().tokens_per_s
    points = tuple(_points(bench.arrivals, cell, plans, full, report))
    return WholeOutcome(cell, planned, rates, ceiling, points)


def _points(
    arrivals: Arrivals,
    cell: OnlineCell,
    plans: Sequence[tuple[tuple[str, ...], Planned]],
    full_requests_per_s: float,
    report: Callable[[str], None],
) -> Iterator[tuple[float, tuple[str, ...], Outcome]]:
    for share in arrivals.shares:
        workload = cell.load.workload(arrivals.requests, share * full_requests_per_s)
        for policies, each in plans:
            report(f"{share:.0%} of gpu-only's requests, {', '.join(policies)}")
            yield share, policies, simulate(simulated(each), workload)


def rows_of(outcome: WholeOutcome) -> Iterator[BenchRow]:
    """Rows of the common record format."""
    rates = outcome.tokens_per_s
    for each in outcome.planned:
        if each.option is None:
            continue
        row, rate = (
            partial(BenchRow, str(outcome.cell), f"simulated {each.policy}"),
            rates[each.policy],
        )
        yield row("throughput", rate, "tokens/s", outcome.ceiling)
        if each.predicted_per_s is not None:
            yield row("predicted over simulated", each.predicted_per_s / rate, "ratio", 1.0)
        yield row("auto over it", rates[AUTO] / rate, "ratio", 1.0)
    for share, policies, seen in outcome.points:
        case = f"{outcome.cell}; {share:.0%} of gpu-only's requests per second"
        row = partial(BenchRow, case, f"simulated {' = '.join(policies)}")
        yield row("throughput", seen.tokens_per_s, "tokens/s")
        for what, found in (("first token", seen.ttft), ("time per token", seen.tpot)):
            assert found is not None, "requests of a load have at least two tokens"
            yield row(f"{what}, p50", found.p50_s, "s", None, (found.p50_s, found.p99_s))
            yield row(f"{what}, p90", found.p90_s, "s")
            yield row(f"{what}, p99", found.p99_s, "s")


def describe(outcome: WholeOutcome) -> Iterator[str]:
    """Lines for people: the plans, and what comes of them."""
    yield f"{outcome.cell}: no plan exceeds {outcome.ceiling:.1f} tokens/s"
    for each in outcome.planned:
        if each.option is None:
            yield f"  {each.policy}: {each.describe()}"
            continue
        rate, predicted = outcome.tokens_per_s[each.policy], each.predicted_per_s
        told = "" if predicted is None else f", predicted {predicted:8.1f}"
        yield (
            f"  {each.policy:14} {rate:8.1f} tokens/s{told}; "
            f"auto over it {outcome.tokens_per_s[AUTO] / rate:.3f}; {each.describe()}"
        )
