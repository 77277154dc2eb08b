"""Requests of a Poisson process, served by a plan's engine and by the simulator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.bench.online.bed import Bed
from tandem.bench.online.cell import OnlineCell
from tandem.bench.online.engine import build_engine
from tandem.bench.online.open_loop import Served, serve
from tandem.bench.online.plans import Planned
from tandem.bench.online.simulated import simulated
from tandem.bench.replay.replay import Recorded
from tandem.plan.online import OnlinePlan
from tandem.simulator.outcome import Outcome
from tandem.simulator.simulate import simulate
from tandem.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests come.

    Attributes:
        shares: of the requests per second that the accelerator alone completes when it is kept
            full; a run for each.
        requests: of a run.
    """

    shares: tuple[float, ...] = ()
    requests: int = 200


@dataclass(frozen=True, slots=True)
class Point:
    """A plan at one rate of arrival.

    Attributes:
        share: of what the accelerator alone completes.
        policies: whose plan it is.
        simulated: of the same requests, before anything was executed.
        recorded: the run, if it was kept.
    """

    share: float
    requests_per_s: float
    policies: tuple[str, ...]
    served: Served
    simulated: Outcome
    recorded: Recorded | None = None


def serve_arrivals(
    arrivals: Arrivals,
    cell: OnlineCell,
    bed: Bed,
    planned: Sequence[Planned],
    full_requests_per_s: float,
    report: Callable[[str], None],
    *,
    journaled: bool = False,
) -> tuple[Point, ...]:
    """Every different plan at every rate; lengths are the same at all of them.

    Args:
        full_requests_per_s: what the accelerator alone completes.
        journaled: keep programs, to be executed again.
    """
    found: list[Point] = []
    for share in arrivals.shares:
        rate = share * full_requests_per_s
        workload = cell.load.workload(arrivals.requests, rate)
        for policies, each in different_plans(planned):
            report(f"{rate:.3g} requests/s, {', '.join(policies)}")
            said = simulate(simulated(each), workload)
            served, recorded = _executed(cell, bed, each, workload, journaled=journaled)
            found.append(Point(share, rate, policies, served, said, recorded))
    return tuple(found)


def different_plans(planned: Sequence[Planned]) -> list[tuple[tuple[str, ...], Planned]]:
    """Each plan once, after the policies that have it; policies that cannot run this have none."""
    plans: dict[OnlinePlan, list[Planned]] = {}
    for each in planned:
        if each.plan is not None:
            plans.setdefault(each.plan, []).append(each)
    return [(tuple(each.policy for each in alike), alike[0]) for alike in plans.values()]


def _executed(
    cell: OnlineCell, bed: Bed, planned: Planned, workload: Workload, *, journaled: bool
) -> tuple[Served, Recorded | None]:
    clock = bed.clock()
    engine = build_engine(cell, bed, planned, clock, journaled=journaled)
    try:
        served = serve(engine.core, workload, clock)
    finally:
        engine.core.close()
    name, layers = f"{planned.policy}, arrivals", cell.model.num_layers
    return served, Recorded.of(name, engine, layers) if journaled else None
