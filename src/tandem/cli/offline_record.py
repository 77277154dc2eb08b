"""Where the rows of `tandem bench offline` go, cell by cell."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tandem.cli.bench_records import finish, report, write_so_far

if TYPE_CHECKING:
    from tandem.bench.offline.cell import OfflineCell
    from tandem.bench.offline.resumed import Done
    from tandem.bench.records import BenchRow


class _OfCell(Protocol):
    @property
    def cell(self) -> "OfflineCell": ...


Outcome = TypeVar("Outcome", bound=_OfCell)


@dataclass(frozen=True, slots=True)
class OfflineRecord:
    """Where the rows of cells go; nothing is lost if a run ends before all are done.

    Attributes:
        left_out: cells that are not run, and why.
        cells: that are asked for. whole: of which the record is to have rows in the end.
        done: of earlier runs; None: this one does not go on with any.
    """

    machine: dict[str, Any]
    json_path: Path | None
    left_out: tuple[str, ...]
    cells: "tuple[OfflineCell, ...]"
    whole: "tuple[OfflineCell, ...]"
    done: "Done | None" = None

    @property
    def to_run(self) -> "list[OfflineCell]":
        """What no earlier run did."""
        return [cell for cell in self.cells if not self._has(cell)]

    def of(
        self,
        outcomes: Iterable[Outcome],
        rows_of: "Callable[[Outcome], Iterable[BenchRow]]",
    ) -> list[Outcome]:
        """All outcomes, one a cell; written whenever one is there."""
        from tandem.bench.offline.cut_ratios import ratio_rows
        from tandem.bench.offline.suite import SUITE

        if not self.to_run:
            self._tell_all_is_done()
            return []
        found: list[Outcome] = []
        rows: list[BenchRow] = [] if self.done is None else [*self.done.rows]
        for outcome in outcomes:
            found.append(outcome)
            rows += [*rows_of(outcome), *ratio_rows(outcome.cell)]
            notes = self._notes(len(found), ended=False)
            write_so_far(SUITE, self.machine, rows, self.json_path, *notes)
        finish(SUITE, self.machine, rows, self.json_path, *self._notes(len(found), ended=True))
        return found

    def _notes(self, num_found: int, *, ended: bool) -> Iterable[str]:
        """Of this run and those before, each once.

        Args:
            num_found: cells of this run that are done.
        """
        from tandem.bench.records import unfinished

        before = () if self.done is None else self.done.notes
        num_done = sum(map(self._has, self.whole)) + num_found
        is_whole = ended and num_done >= len(self.whole)
        left = () if is_whole else (unfinished(num_done, len(self.whole)),)
        return dict.fromkeys((*before, *self.left_out, *left))

    def _has(self, cell: "OfflineCell") -> bool:
        return self.done is not None and self.done.has(cell)

    def _tell_all_is_done(self) -> None:
        """The record stays as it is: it is of other runs."""
        from tandem.bench.table import print_record

        report("all these cells are done: nothing is run, and the record stays as it is")
        if self.done is not None and self.done.record is not None:
            print_record(self.done.record)
