"""What an earlier part found of the GPU alone, with which later ones compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.cases import UnfinishedError
from benchmarks.gpu.gain import BOUND

from tandem.bench.records import BenchRecord, BenchRow

ALONE = "gpu-only"


@dataclass(frozen=True, slots=True)
class KeptAlone:
    """A cell's job by the GPU alone.

    Attributes:
        per_s: tokens; the median of what was measured beside others. gain: that is possible at
            most; None where no bound holds.
    """

    per_s: float
    gain: float | None

    @staticmethod
    def of(record: Path, case: str) -> "KeptAlone":
        """From a part's record.

        Raises:
            UnfinishedError: it has none yet.
        """
        if not record.exists():
            raise UnfinishedError(f"{record.stem} comes first, and is not measured yet")
        rows = BenchRecord.from_json(record.read_text(encoding="utf-8")).rows
        alone = [row.value for row in _of(rows, case, "throughput") if _is_alone(row)]
        if not alone:
            raise UnfinishedError(f"{record.stem} has no figures of {ALONE}")
        bound = next((row.value for row in _of(rows, case, BOUND)), None)
        return KeptAlone(sorted(alone)[len(alone) // 2], bound)


def _of(rows: Sequence[BenchRow], case: str, metric: str) -> list[BenchRow]:
    return [row for row in rows if row.case == case and row.metric == metric]


def _is_alone(row: BenchRow) -> bool:
    return row.variant.startswith(f"{ALONE}, beside")
