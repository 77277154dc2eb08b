"""`tandem bench offline --held-out`: plans for a machine as described, executed on the true one.

Nothing is probed and nothing told: accelerator, link and host are as their descriptions say, of
which the truth deviates. Beside the plan of an informed planner are executed: that plan by measured
terms, as jobs do (shares solved anew, another plan where that is better by enough), and as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.plans import AUTO, ask, ceiling_of
from tandem.bench.offline.renewed_job import RenewedJob, execute_renewed
from tandem.bench.records import BenchRow
from tandem.memory.margin import margin_bytes
from tandem.plan.offline import OfflinePlan
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.policies import find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file
from tandem.planner.question import Question
from tandem.spec.errors import ConfigError

INFORMED = "informed"
CORRECTED = "as described, corrected by measured terms"
FIXED = "as described, not corrected"


@dataclass(frozen=True, slots=True)
class HeldOutRun:
    """What was planned, and what came of it."""

    name: str
    option: BlockOption
    executed: RenewedJob

    @property
    def predicted_per_s(self) -> float:
        """Output tokens, by who made the plan."""
        return self.option.tokens_per_s


@dataclass(frozen=True, slots=True)
class HeldOutOutcome:
    """Of a cell.

    Attributes:
        most_per_s: what no plan exceeds, at the rates that the informed planner has.
    """

    cell: OfflineCell
    most_per_s: float | None
    runs: tuple[HeldOutRun, ...]

    @property
    def informed_per_s(self) -> float:
        """Executed, of the informed planner's plan."""
        return self.runs[0].executed.tokens_per_s


def run_held_out(
    cells: Sequence[OfflineCell], report: Callable[[str], None]
) -> Iterator[HeldOutOutcome]:
    """All of it in every cell, each cell as soon as it is done.

    Args:
        report: told in words what is being done.

    Raises:
        ConfigError: nothing fits a cell (`selection.check_room`).
    """
    for cell in cells:
        report(str(cell))
        yield _run_cell(cell, report)


def as_described(cell: OfflineCell) -> Question:
    """The planner's question where nobody has measured anything."""
    told = cell.described
    card = told.accelerator.memory_bytes
    return replace(ask(cell), hardware=told, device_bytes=card - margin_bytes(card))


def _run_cell(cell: OfflineCell, report: Callable[[str], None]) -> HeldOutOutcome:
    informed, described = OfflineSearch(ask(cell)), OfflineSearch(as_described(cell))
    ceiling = ceiling_of(cell)
    runs: list[HeldOutRun] = []
    for name, search, adapts in (
        (INFORMED, informed, True),
        (CORRECTED, described, True),
        (FIXED, described, False),
    ):
        option = _chosen(cell, search)
        plan = offline_plan(search, option.candidate, adapts=adapts)
        runs.append(HeldOutRun(name, option, _executed(cell, search.question, plan)))
        report(f"{name}: {runs[-1].executed.tokens_per_s:.1f} tokens/s")
    return HeldOutOutcome(cell, None if ceiling is None else ceiling.tokens_per_s, tuple(runs))


def _chosen(cell: OfflineCell, search: OfflineSearch) -> BlockOption:
    policy = find_offline_policy(AUTO)
    option = search.best(policy)
    if option is None:
        raise ConfigError(f"{cell}: nothing fits; raise --layers", param="layers")
    return search.simplest(policy, option)


def _executed(cell: OfflineCell, question: Question, plan: OfflinePlan) -> RenewedJob:
    return execute_renewed(cell, offline_plan_file(cell.model_name, question, plan))


def rows_of(outcome: HeldOutOutcome) -> Iterator[BenchRow]:
    """Rows of the common record format."""
    for run in outcome.runs:
        row = partial(BenchRow, str(outcome.cell), f"virtual {run.name}")
        reached = run.executed.tokens_per_s
        yield row("throughput", reached, "tokens/s", outcome.most_per_s)
        yield row("of the informed plan", reached / outcome.informed_per_s, "ratio", 1.0)
        yield row("predicted over executed", run.predicted_per_s / reached, "ratio", 1.0)
        yield row("plans in force", run.executed.plans, "plans", None)
        yield row("times that passes were said to be off", _times_off(run), "times", None)


def _times_off(run: HeldOutRun) -> int:
    return sum("a pass was predicted to take" in line for line in run.executed.said)


def describe(outcome: HeldOutOutcome) -> Iterator[str]:
    """Lines for people."""
    yield str(outcome.cell)
    for run in outcome.runs:
        reached, informed = run.executed.tokens_per_s, outcome.informed_per_s
        of_most = "" if outcome.most_per_s is None else f" ({reached / outcome.most_per_s:.0%})"
        yield (
            f"  {run.name}: {reached:.1f} tokens/s{of_most}, {reached / informed:.2f} "
            f"of the informed plan; predicted {run.predicted_per_s:.1f} "
            f"({run.predicted_per_s / reached - 1:+.1%})"
        )
        yield f"    {run.option.candidate.describe(outcome.cell.model.num_layers)}"
        yield from (f"    {line}" for line in run.executed.said)
