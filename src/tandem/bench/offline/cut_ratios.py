"""What cutting a cell changes: each ratio of the whole pair and model, and of the cut ones.

Both as described: how the truth deviates is drawn for each cell, and is no matter of the cut.
"""

from collections.abc import Iterator

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.online.cell import DTYPE
from tandem.bench.records import BenchRow
from tandem.cost.pair_ratios import Cell, Ratio, compare_cells
from tandem.planner.question import Lengths

CUT = "cut"
"""Variant of their rows."""


def cut_ratios(cell: OfflineCell) -> tuple[Ratio, ...]:
    """Of the whole pair beside the cut one."""
    context = round(Lengths.of(cell.workload).context_tokens)
    real = Cell(cell.pair, cell.whole, DTYPE, context)
    return compare_cells(real, Cell(cell.described, cell.model, DTYPE, context))


def ratio_rows(cell: OfflineCell) -> Iterator[BenchRow]:
    """Of the record: the cut pair's, beside the whole one's."""
    for ratio in cut_ratios(cell):
        yield BenchRow(str(cell), CUT, ratio.name, ratio.scaled, "ratio", ratio.real)


def describe_ratios(cell: OfflineCell) -> Iterator[str]:
    """A line for people, and one for each ratio that is off by more than 20%."""
    found = cut_ratios(cell)
    most = max(abs(ratio.off) for ratio in found)
    yield f"  cut: {len(found)} ratios of the machine to the model, off by at most {most:.1%}"
    yield from (f"    {ratio}" for ratio in found if ratio.flagged)
