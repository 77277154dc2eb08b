"""One published figure beside what a cost model says about it."""

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """What a comparison is worth."""

    SCORED = "scored"
    CALIBRATED = "calibrated"  # the model took a number from this cell
    LISTED = "listed"  # contradictory, or beyond what the model speaks of
    BASELINE = "baseline"  # a predictor without a model, to be compared with
    WHAT_IF = "what-if"  # what efficient kernels would give on that hardware


@dataclass(frozen=True, slots=True)
class PaperCell:
    """One cell.

    Attributes:
        place: table or figure of the paper.
        cell: which entry of it.
        predictor: who says so: the paper's model as corrected here, or a baseline.
        predicted, published: None where there is no such figure.
        note: why it is off, or not scored.
    """

    paper: str
    place: str
    cell: str
    unit: str
    predicted: float | None
    published: float | None
    role: Role = Role.SCORED
    predictor: str = "model"
    note: str = ""

    @property
    def error(self) -> float | None:
        """Relative: predicted over published, less one."""
        if self.predicted is None or not self.published:
            return None
        return self.predicted / self.published - 1

    def as_json(self) -> dict[str, Any]:
        """All fields and the error."""
        return {**asdict(self), "error": self.error}


def median_error(cells: Iterable[PaperCell]) -> float:
    """Median of the absolute relative errors of the cells that have one."""
    return statistics.median(abs(cell.error) for cell in cells if cell.error is not None)
