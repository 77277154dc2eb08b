"""Rows of the record, and lines for people, of what was measured in a cell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from tandem.bench.online.bed import PACED
from tandem.bench.online.bound import Bound
from tandem.bench.online.cell import DTYPE
from tandem.bench.online.latency_rows import latency_lines, latency_rows
from tandem.bench.online.overall import OVER_BEST, PREDICTED, SIMULATED
from tandem.bench.online.plans import ENGINE
from tandem.bench.online.suite import AUTO, BASELINE, CellOutcome
from tandem.bench.online.window import Window
from tandem.bench.records import BenchRow, row_of_samples
from tandem.bench.replay.replay import MIXTURE_NOT_REPLAYED, NOT_REPLAYED, Replay
from tandem.bench.replay.rows import replay_rows
from tandem.cost.apex.overlap import WORTH_CAPTURING
from tandem.cost.pair_ratios import Cell, Ratio, compare_cells
from tandem.probes.interleave import LEAST_PAIRS, PairedRatio, paired_ratio
from tandem.runtime.measures import OverlapTotals
from tandem.spec.hardware_file import load_hardware

CHOOSING = AUTO, f"{ENGINE} {AUTO}"
"""Those that are to be at least equal to the best of all others: of plans, and of steps."""


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """One policy in one cell.

    Attributes:
        rates: tokens per second, window by window.
        predicted, simulated: by the planner in means, and by the simulator; no plan predicts what
            comes of steps that are chosen one by one.
        auto_over: of `auto`, paired; None of a policy whose plan is the same.
        reasons: for which windows are invalid, each once.
    """

    policy: str
    predicted: float | None
    simulated: float
    rates: tuple[float, ...]
    auto_over: PairedRatio | None
    invalid: int
    reasons: tuple[str, ...]
    windows: tuple[Window, ...]

    @property
    def executed(self) -> float:
        """The median window."""
        return median(self.rates)


def figures_of(outcome: CellOutcome) -> tuple[PolicyFigures, ...]:
    """Of all policies that can run it, in order."""
    plans = {each.policy: each.plan for each in outcome.planned}
    auto = [window.tokens_per_s for window in outcome.windows[AUTO]]
    found: list[PolicyFigures] = []
    for each in outcome.planned:
        if each.option is None:
            continue
        windows = outcome.windows[each.policy]
        rates = tuple(window.tokens_per_s for window in windows)
        same = plans[each.policy] == plans[AUTO]
        reasons = [reason for window in windows for reason in window.report.reasons]
        found.append(
            PolicyFigures(
                each.policy,
                each.predicted_per_s,
                outcome.simulated[each.policy],
                rates,
                None if same else paired_ratio(auto, rates),
                sum(not window.report.valid for window in windows),
                tuple(dict.fromkeys(reasons)),
                windows,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class BestOther:
    """How one that chooses compares with the best of the others, by the median window.

    Attributes:
        chooser: `auto`'s plan, or the engine's own choice in each step. policy: the best other.
        ratio: in the same turns, in the median. lower_95: of that; None of
            too few turns.
        num_windows: of each.
    """

    chooser: str
    policy: str
    ratio: float
    lower_95: float | None
    num_windows: int

    @property
    def equalled(self) -> bool | None:
        """Whether `auto` is at least equal to it: not by medians, but by the limit; None: no
        verdict, for want of windows.
        """
        return None if self.lower_95 is None else self.lower_95 >= 1

    def __str__(self) -> str:
        if self.lower_95 is None:
            return (
                f"{self.chooser} over the best other, {self.policy}: {self.ratio:.3f}; no verdict: "
                f"{self.num_windows} windows of each, {LEAST_PAIRS} are the least"
            )
        verdict = "at least equal" if self.equalled else "NOT shown to be equal"
        ratio = f"lower 95% {self.lower_95:.3f}"
        return f"{self.chooser} is {verdict} to the best other, {self.policy}: {ratio}"


def best_other(figures: Sequence[PolicyFigures], chooser: str = AUTO) -> BestOther | None:
    """None if there is no such chooser, or it is alone."""
    own = next((each.rates for each in figures if each.policy == chooser), None)
    others = [each for each in figures if each.policy != chooser]
    if not others or own is None:
        return None
    best = max(others, key=lambda each: each.executed)
    ratio = paired_ratio(own, best.rates)  # windows are shared by those that do the same: then 1
    return BestOther(chooser, best.policy, ratio.median, ratio.lower_95, len(own))


def rows_of(outcome: CellOutcome) -> tuple[BenchRow, ...]:
    """Rows of the common record format."""
    figures = {each.policy: each for each in figures_of(outcome)}
    alone = figures.get(BASELINE)
    bound = outcome.bound
    rows: list[BenchRow] = []
    for each in figures.values():
        case, variant = str(outcome.cell), f"{outcome.bed.word} {each.policy}"
        row = partial(BenchRow, case, variant)
        limit = None if bound is None else bound.tokens_per_s
        rows.append(row_of_samples(case, variant, "throughput", each.rates, "tokens/s", limit))
        if each.predicted is not None:
            rows.append(row(PREDICTED, each.predicted / each.executed, "ratio", 1.0))
        rows.append(row(SIMULATED, each.simulated / each.executed, "ratio", 1.0))
        if each.auto_over is not None:
            rows += _paired(row, "auto over it", each.auto_over)
        best = best_other([*figures.values()], each.policy) if each.policy in CHOOSING else None
        if best is not None and best.lower_95 is not None:
            rows.append(row(OVER_BEST, best.lower_95, "ratio", 1.0))
        if each.policy.startswith(ENGINE) and alone is not None:
            rows += _paired(row, "over gpu-only", paired_ratio(each.rates, alone.rates))
        if each.policy == AUTO and alone is not None and bound is not None:
            rows += _captured(row, each, alone, bound)
        if outcome.bed.word == PACED:
            rows += _honesty(row, each)
        rows += _busy(row, each)
        if each.policy in outcome.replays:
            rows += replay_rows(case, variant, outcome.replays[each.policy])
    return (*rows, *latency_rows(outcome))


def _paired(row: partial[BenchRow], what: str, ratio: PairedRatio) -> list[BenchRow]:
    rows = [row(f"{what}, paired", ratio.median, "ratio", 1.0, ratio.spread)]
    if ratio.lower_95 is not None:
        rows.append(row(f"{what}, lower 95%", ratio.lower_95, "ratio", 1.0))
    return rows


def _captured(
    row: partial[BenchRow], auto: PolicyFigures, alone: PolicyFigures, bound: Bound
) -> list[BenchRow]:
    gain = 0.0
    if auto.auto_over is None and alone.auto_over is not None:
        gain = alone.auto_over.median - 1
    most = max(0.0, bound.least_per_s / alone.executed - 1)
    return [row("gain over gpu-only", gain, "ratio - 1", most or None)]


def _honesty(row: partial[BenchRow], each: PolicyFigures) -> list[BenchRow]:
    """Whether it may be believed, where time is real: the worst window counts."""
    reports = [window.report for window in each.windows]
    late_s = max(report.lateness_p95_s for report in reports)
    stage_s = min(report.stage_s for report in reports)
    return [
        row("windows valid", 1 - each.invalid / len(reports), "share", 1.0),
        row("lateness p95, worst window", late_s, "s", 0.05 * stage_s),
        row("submissions late p95", max(report.submit_lateness_p95_s for report in reports), "s"),
        row("waking late p95", max(report.waking_p95_s for report in reports), "s"),
        row("scheduler core busy", max(report.busy_share for report in reports), "share", 0.8),
    ]


def _busy(row: partial[BenchRow], each: PolicyFigures) -> list[BenchRow]:
    reports = [window.report for window in each.windows]
    return [
        row("accelerator busy", median(report.accel_busy for report in reports), "share", 1.0),
        row("CPU busy", median(report.cpu_busy for report in reports), "share", 1.0),
        row("time per token of the slowest", median(w.period_s for w in each.windows), "s"),
        *_overlap(row, each),
    ]


def _overlap(row: partial[BenchRow], each: PolicyFigures) -> list[BenchRow]:
    """Of all windows together."""
    totals = OverlapTotals.sum(window.overlap for window in each.windows)
    shares = {
        "accelerator idle": (totals.accel_idle_share, 0.0),
        "host attention hidden": (totals.hidden_share, 1.0),
    }
    return [
        row(metric, share, "share", bound)
        for metric, (share, bound) in shares.items()
        if share is not None
    ]


def describe(outcome: CellOutcome) -> list[str]:
    """Lines for people: what was planned, what came of it, what to distrust."""
    figures = figures_of(outcome)
    alone = next((each for each in figures if each.policy == BASELINE), None)
    lines = [str(outcome.cell)]
    bound = outcome.bound
    if bound is not None and alone is not None:
        most, plans = (each / alone.executed for each in (bound.tokens_per_s, bound.of_plans))
        lines.append(f"  bound {most:.2f}x gpu-only: {bound.how}; no plan exceeds {plans:.2f}x")
    lines += [f"  {best}" for each in CHOOSING if (best := best_other(figures, each)) is not None]
    for each in figures:
        lines += _policy_lines(outcome, each, alone, bound)
    lines += [
        f"  {each.policy}: {each.describe()}" for each in outcome.planned if each.option is None
    ]
    lines += latency_lines(outcome)
    lines += _replay_lines(outcome)
    return lines + [f"  {ratio}" for ratio in _ratios(outcome)]


def _replay_lines(outcome: CellOutcome) -> list[str]:
    different = {each.plan: each.policy for each in outcome.planned if each.plan is not None}
    replays = [found for policy, found in outcome.replays.items() if policy in different.values()]
    if not replays:
        mixture = outcome.cell.model.experts is not None
        return [f"  {MIXTURE_NOT_REPLAYED if mixture else NOT_REPLAYED}"]
    return [f"  {Replay.joined(replays).describe()}, of {len(replays)} plans"]


def _policy_lines(
    outcome: CellOutcome, each: PolicyFigures, alone: PolicyFigures | None, bound: Bound | None
) -> list[str]:
    against = "; the same plan as auto"
    if each.policy == AUTO:
        against = ""
        if alone is not None and alone.auto_over is not None:
            against = f"; {alone.auto_over.median - 1:+.1%} of gpu-only"
            against += _shares(alone.auto_over.median - 1, alone.executed, bound)
    elif each.auto_over is not None:
        ratio = each.auto_over
        limit = "" if ratio.lower_95 is None else f" (lower 95% {ratio.lower_95:.3f})"
        against = f"; auto over it {ratio.median:.3f}{limit}"
    report = each.windows[-1].report
    planned = next(p for p in outcome.planned if p.policy == each.policy)
    said = [] if each.predicted is None else [("predicted", each.predicted)]
    told = ", ".join(
        f"{word} {rate:8.1f} ({rate / each.executed - 1:+.1%})"
        for word, rate in (*said, ("simulated", each.simulated))
    )
    lines = [
        f"  {each.policy:14} {each.executed:8.1f} tokens/s, {told}{against}",
        f"    {planned.describe()}; accelerator {report.accel_busy:.0%} busy, CPU "
        f"{report.cpu_busy:.0%}",
    ]
    if each.invalid and outcome.bed.word == PACED:
        lines.append(f"    INVALID in {each.invalid} of {len(each.windows)} windows, such as:")
        lines += [f"      {reason}" for reason in each.reasons[:2]]
    return lines


def _shares(gain: float, alone: float, bound: Bound | None) -> str:
    """Of the gain that there could be by the smaller bound, where it is worth capturing."""
    if bound is None or bound.least_per_s / alone < WORTH_CAPTURING:
        return ""
    return f", {gain / (bound.least_per_s / alone - 1):.0%} of the gain that neither bound excludes"


def _ratios(outcome: CellOutcome) -> tuple[Ratio, ...]:
    """Of the real pair beside the emulated one, the host as it was measured here."""
    cell = outcome.cell
    origin = cell.hardware.scaled_from
    if origin is None:
        return ()
    context = round(outcome.bed.question.lengths.context_tokens)
    real = Cell(load_hardware(origin), cell.whole, DTYPE, context)
    here = replace(cell.hardware, host=outcome.bed.question.hardware.host)
    return compare_cells(real, Cell(here, cell.model, DTYPE, context))
