"""What all cells of a record say together; of its rows alone, so that records can be joined."""

from collections.abc import Sequence

from tandem.bench.records import BenchRow, row_of_samples

OVER_BEST = "auto over the best other policy, lower 95%"
PREDICTED, SIMULATED = "predicted over executed", "simulated over executed"
MOST_ERROR = 0.1
"""That the median of simulations may miss what is executed by."""
_ALL = "all cells"


def overall_rows(rows: Sequence[BenchRow]) -> tuple[BenchRow, ...]:
    """By how much predictions and simulations miss what was executed, over all cells and policies
    that differ in their plans, and in how many cells `auto`, and the engine's own choice in each
    step, is at least equal to whoever is best.

    Policies with the same plan share their windows, and therefore their figures.
    """
    rows = cell_rows(rows)
    if not rows:
        return ()
    word = rows[0].variant.partition(" ")[0]
    predicted, simulated = _errors(rows, PREDICTED), _errors(rows, SIMULATED)
    errors = {"predicted, error": predicted, "simulated, error": simulated}
    found = [
        row_of_samples(
            f"{_ALL}, {len(samples)} plans", f"{word} all", metric, samples, "share", MOST_ERROR
        )
        for metric, samples in errors.items()
    ]
    for chooser in dict.fromkeys(row.variant for row in rows if row.metric == OVER_BEST):
        limits = [r.value for r in rows if r.metric == OVER_BEST and r.variant == chooser]
        share = sum(limit >= 1 for limit in limits) / len(limits)
        spread = min(limits), max(limits)
        found += [
            BenchRow(f"{_ALL}, {len(limits)}", chooser, metric, value, unit, 1.0, told)
            for metric, value, unit, told in (
                (
                    "at least equal to the best other policy",
                    share,
                    "share of cells",
                    (share, share),
                ),
                (f"{OVER_BEST}, worst cell", spread[0], "ratio", spread),
            )
        ]
    return tuple(found)


def cell_rows(rows: Sequence[BenchRow]) -> tuple[BenchRow, ...]:
    """Those that are of single cells."""
    return tuple(row for row in rows if not row.case.startswith(_ALL))


def _errors(rows: Sequence[BenchRow], metric: str) -> list[float]:
    """Of each plan once: by cell, figures that differ."""
    plans = {(row.case, row.value) for row in rows if row.metric == metric}
    return [abs(value - 1) for _, value in sorted(plans)]
