"""`tandem bench online`: the chosen plan and each policy's, predicted, simulated and executed.

For every cell: the probes of `tandem profile` measure an emulated accelerator and the cores beside
it; from that profile alone the planner makes a plan per policy; the engine executes each plan on
the emulator, window by window in turns, and the simulator says beforehand what comes of it. The
accelerator's and the link's times are emulated, by a truth that planning does not know; the host's
attention, the scheduler and their threads are real, and all figures carry the word `paced`. In
virtual time they take what the host's description says, and nothing, and the word is `virtual`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from tandem.bench.online.arrivals import Arrivals, Point, different_plans, serve_arrivals
from tandem.bench.online.bed import Bed, virtual_bed
from tandem.bench.online.bound import Bound, bound_of
from tandem.bench.online.cell import OnlineCell
from tandem.bench.online.plans import Planned, engine_rows, plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.bench.online.window import PacedRun, Window, steady_run
from tandem.bench.own_core import own_core
from tandem.bench.replay.replay import Recorded, Replay, replay
from tandem.plan.online import OnlinePlan
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.probes.effort import Effort
from tandem.spec.errors import ConfigError

SUITE = "online"
AUTO, BASELINE = "auto", "gpu-only"
_CHUNKS = (0.25, 0.5, 1.0, 2.0)
"""Of a cell's step: fixed sizes in which the accelerator alone reads prompts."""


@dataclass(frozen=True, slots=True)
class OnlineBench:
    """How much is run.

    Attributes:
        policies: beside `auto` and `gpu-only`; empty: all that can be planned.
        strategies: of the engine's own, those that choose each step of `auto`'s plan.
        pairs: windows of every plan, in turns.
        window_s: least time of one.
        virtual: time is; the host's rates are told, and nothing is measured.
        arrivals: requests that come over time.
        replays: execute all programs of all runs exactly afterwards, tokens compared.
        effort: of the probes; None: as much as `tandem profile` takes for one element type.
    """

    policies: tuple[str, ...] = ()
    pairs: int = 7
    window_s: float = 1.0
    virtual: bool = False
    arrivals: Arrivals = field(default_factory=Arrivals)
    replays: bool = True
    effort: Effort | None = None
    strategies: tuple[str, ...] = ()

    def planned(self, question: Question, cell: OnlineCell) -> tuple[Planned, ...]:
        """Plans of all policies, `auto` first, and what the engine's own strategies do with its.

        Raises:
            ConfigError: an unknown policy, or one that cannot be planned.
        """
        planned = plan_policies(question, self.names(cell))
        return (*planned, *engine_rows(planned[0], self.strategies))

    def names(self, cell: OnlineCell) -> tuple[str, ...]:
        """Of all policies, `auto` first; the accelerator alone over sizes of chunks if there are
        prompts.
        """
        wanted = self.policies
        if not wanted:
            tokens = 0 if cell.load.decodes_only else cell.max_num_batched_tokens
            chunks = tuple(f"{BASELINE}/{round(share * tokens)}" for share in _CHUNKS if tokens)
            wanted = (*POLICIES, *chunks)
        return tuple(dict.fromkeys((AUTO, BASELINE, *wanted)))

    def keeps(self, cell: OnlineCell) -> bool:
        """Whether its programs are executed again: those of mixtures of experts cannot be yet."""
        return self.replays and cell.model.experts is None


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """All that was measured of a cell.

    Attributes:
        windows: by policy, in the order of their turns; policies with equal plans share theirs.
            Those that cannot run it have none.
        simulated: tokens per second of the same steady state, by policy.
        bound: what none exceeds; None if the accelerator alone cannot run it.
        points: of requests that come over time.
        replays: of the programs of each plan's runs, by policy; empty if none were.
    """

    cell: OnlineCell
    bed: Bed
    planned: tuple[Planned, ...]
    windows: Mapping[str, tuple[Window, ...]]
    simulated: Mapping[str, float]
    bound: Bound | None
    points: tuple[Point, ...]
    replays: Mapping[str, Replay]


def run_online(
    bench: OnlineBench,
    cells: Sequence[OnlineCell],
    report: Callable[[str], None],
    ended: Callable[[CellOutcome], None] = lambda _: None,
) -> list[CellOutcome]:
    """Every cell, one after the other.

    Args:
        report: told in words what is being done.
        ended: told of each cell when it is done.

    Raises:
        ConfigError: the machine has a single core, an unknown policy, or a cell that nothing fits.
        ReplayError, ReplayMismatchError: a replay went wrong.
    """
    outcomes: list[CellOutcome] = []

    def take(outcome: CellOutcome) -> None:
        outcomes.append(outcome)
        ended(outcome)

    if bench.virtual:
        for cell in cells:
            take(_run_cell(bench, cell, virtual_bed(cell), report))
        return outcomes
    from tandem.bench.online.measured import measured_bed

    with own_core() as cores:
        for cell in cells:
            bed = measured_bed(cell, cores, bench.effort, report)
            take(_run_cell(bench, cell, bed, report))
    return outcomes


def _run_cell(
    bench: OnlineBench, cell: OnlineCell, bed: Bed, report: Callable[[str], None]
) -> CellOutcome:
    report(str(cell))
    begin = time.perf_counter()
    planned = bench.planned(bed.question, cell)
    report(f"planned in {time.perf_counter() - begin:.1f} s")
    if planned[0].plan is None:
        raise ConfigError(f"{cell}: nothing fits; lower --layers", param="layers")
    for each in planned:
        rate = each.predicted_per_s
        report(f"{each.policy}: {each.describe()}" + ("" if rate is None else f"; {rate:.1f}/s"))
    simulated = _simulate(bench, cell, planned, report)
    windows, recorded = _execute(bench, cell, bed, planned, report)
    alone = next(each.option for each in planned if each.policy == BASELINE)
    bound = None
    if alone is not None:
        decodes, read = cell.load.decodes_only, bed.read_bytes_per_s
        bound = bound_of(decodes, read, bed.question, alone, windows[BASELINE])
    full = windows[AUTO if alone is None else BASELINE]
    requests_per_s = median(window.tokens_per_s for window in full) / cell.load.generated_tokens
    keeps = bench.keeps(cell)
    points = serve_arrivals(
        bench.arrivals, cell, bed, planned, requests_per_s, report, journaled=keeps
    )
    replays = _replay(planned, recorded, points, report) if keeps else {}
    return CellOutcome(cell, bed, planned, windows, simulated, bound, points, replays)


def _simulate(
    bench: OnlineBench,
    cell: OnlineCell,
    planned: Sequence[Planned],
    report: Callable[[str], None],
) -> dict[str, float]:
    """Each different plan once."""
    found: dict[OnlinePlan, float] = {}
    for each in planned:
        if each.plan is not None and each.plan not in found:
            report(f"simulating {each.policy}")
            found[each.plan] = steady_tokens_per_s(each, cell.load, bench.window_s)
    return {each.policy: found[each.plan] for each in planned if each.plan is not None}


def _replay(
    planned: Sequence[Planned],
    recorded: Mapping[OnlinePlan, Recorded],
    points: Sequence[Point],
    report: Callable[[str], None],
) -> dict[str, Replay]:
    """All runs of each different plan."""
    found: dict[str, Replay] = {}
    for policies, each in different_plans(planned):
        assert each.plan is not None
        report(f"replaying {', '.join(policies)}")
        runs = [recorded[each.plan]]
        runs += [p.recorded for p in points if p.policies == policies and p.recorded is not None]
        whole = Replay.joined([replay(run) for run in runs])
        found |= dict.fromkeys(policies, whole)
    return found


def _execute(
    bench: OnlineBench,
    cell: OnlineCell,
    bed: Bed,
    planned: Sequence[Planned],
    report: Callable[[str], None],
) -> tuple[dict[str, tuple[Window, ...]], dict[OnlinePlan, Recorded]]:
    """Windows of each different plan, A B A B; and its run, if it is kept."""
    able = [each for each in planned if each.plan is not None]
    with ExitStack() as stack:
        runs: dict[OnlinePlan, PacedRun] = {}
        for each in able:
            assert each.plan is not None
            if each.plan not in runs:
                report(f"building {each.policy}")
                runs[each.plan] = steady_run(
                    cell, bed, each, bench.window_s, journaled=bench.keeps(cell)
                )
                stack.callback(runs[each.plan].close)
        found: dict[OnlinePlan, list[Window]] = {plan: [] for plan in runs}
        for turn in range(bench.pairs):
            report(f"turn {turn + 1} of {bench.pairs}, {len(runs)} plans")
            for plan, run in runs.items():
                found[plan].append(run.measure())
        names, layers = {each.plan: each.policy for each in able}, cell.model.num_layers
        keeps = bench.keeps(cell)
        recorded = {p: run.recorded(names[p], layers) for p, run in runs.items() if keeps}
    windows = {each.policy: tuple(found[each.plan]) for each in able if each.plan is not None}
    return windows, recorded
