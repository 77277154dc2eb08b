"""Park and Egger: their tables 6a, 7a and 8a through the split search."""

from collections.abc import Iterable, Sequence
from typing import Any

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.cost.park_egger.operation_times import OperationTimes, split_operations
from tandem.cost.park_egger.search import LayerSplit, best_split, cpu_first, gpu_first
from tandem.spec.operations import Stage

PAPER = "park-egger"
KV_OPERATIONS = ("Scores", "WV")
PIECES = 8
_MS = 1e-3


def single_batch() -> tuple[OperationTimes, ...]:
    """Table 6a: one batch of 50."""
    figures = load_figures(PAPER)
    table = figures["fig6a"]
    return _operations(figures, table["h2d"], table["cpu"])


def two_batches() -> tuple[OperationTimes, ...]:
    """Table 7a: per batch, two batches of 25."""
    figures = load_figures(PAPER)
    table = figures["fig7a"]
    return _operations(figures, table["h2d"], table["cpu"], gpu=table["gpu"])


def compressed() -> tuple[OperationTimes, ...]:
    """Table 8a, with table 6a's CPU times: one batch of 50, compressed, weights on NVMe too."""
    figures = load_figures(PAPER)
    table = figures["fig8a"]
    return _operations(
        figures,
        table["h2d_compressed"],
        figures["fig6a"]["cpu"],
        decompress=table["decompress"],
        storage=table["storage_to_device"],
    )


def _operations(
    figures: dict[str, Any],
    link: Sequence[float],
    cpu: Sequence[float],
    *,
    gpu: Sequence[float] | None = None,
    decompress: Sequence[float] | None = None,
    storage: Sequence[float] | None = None,
) -> tuple[OperationTimes, ...]:
    def at(times_ms: Sequence[float] | None, index: int) -> float:
        return times_ms[index] * _MS if times_ms else 0.0

    operations: list[OperationTimes] = []
    for index, name in enumerate(figures["ops"]):
        is_kv = name in KV_OPERATIONS
        operations.append(
            OperationTimes(
                name,
                cpu_s=at(cpu, index),
                gpu_s=at(gpu, index),
                weight_link_s=0.0 if is_kv else at(link, index),
                kv_link_s=at(link, index) if is_kv else 0.0,
                weight_decompress_s=0.0 if is_kv else at(decompress, index),
                kv_decompress_s=at(decompress, index) if is_kv else 0.0,
                weight_storage_s=at(storage, index),
            )
        )
    return tuple(operations)


def park_egger_cells() -> list[PaperCell]:
    """The optima of each table, and the claims that can be held against them."""
    return [*_optima(), *_claims()]


def _optima() -> list[PaperCell]:
    tables = {"6a": (single_batch(), 1), "7a": (two_batches(), 2), "8a": (compressed(), 1)}
    cells: list[PaperCell] = []
    for table, (operations, batches) in tables.items():
        pieces = split_operations(operations, KV_OPERATIONS, PIECES)
        count = len(operations)
        only = [Stage(0, count)]
        found = {
            "GPU only": best_split(operations, batches=batches, slices=only),
            "CPU first, one cut": best_split(operations, batches=batches, slices=cpu_first(count)),
            "GPU first, one cut": best_split(operations, batches=batches, slices=gpu_first(count)),
            "any two cuts": best_split(operations, batches=batches),
            "any two cuts, in pieces": best_split(pieces, batches=batches),
        }
        if table == "8a":
            found["any two cuts, NVMe"] = best_split(operations, storage=True)
            found["any two cuts, in pieces, NVMe"] = best_split(pieces, storage=True)
        cells += [_optimum(table, name, split) for name, split in found.items()]
    return cells


def _optimum(table: str, name: str, split: LayerSplit) -> PaperCell:
    where = f"GPU [{split.gpu.start}, {split.gpu.end})"
    stored = f", NVMe {list(split.stored)}" if split.stored else ""
    return PaperCell(
        PAPER,
        f"table {table}",
        f"layer latency, {name}",
        "ms",
        split.cost.latency_s / _MS,
        None,
        Role.WHAT_IF,
        note=where + stored,
    )


def _claims() -> list[PaperCell]:
    claims = load_figures(PAPER)["claims"]
    operations = single_batch()
    count = len(operations)
    whole = _latency_s(operations, [Stage(0, count)])
    backward = _latency_s(operations, cpu_first(count))
    forward = best_split(operations, slices=gpu_first(count))
    scores = split_operations(operations, ["Scores"], PIECES)
    finer = _latency_s(scores, cpu_first(len(scores)))
    reduction = claims["single_split_reduction"]
    note = "figure 14's percentages do not follow from table 6a"
    first = reduction["1x50"]
    finer_published = reduction["1x50 scores split, on top"]
    busy = forward.cost
    overlap = min(busy.cpu_s, busy.link_s) / busy.latency_s
    return [
        _claim("one cut, CPU first: reduction", 1 - backward / whole, first, note),
        _claim("one cut, GPU first: reduction", 1 - forward.cost.latency_s / whole, first, note),
        _claim("Scores in 8, CPU first: on top", 1 - finer / backward, finer_published, note),
        PaperCell(
            PAPER,
            "figure 18a",
            "link and CPU both busy, one batch, GPU first",
            "share",
            overlap,
            claims["h2d_cpu_overlap_single_batch"],
        ),
    ]


def _claim(cell: str, predicted: float, published: float, note: str) -> PaperCell:
    return PaperCell(
        PAPER, "figure 14", cell, "share", predicted, published, Role.LISTED, note=note
    )


def _latency_s(operations: Sequence[OperationTimes], slices: Iterable[Stage]) -> float:
    """Latency of the best of some slices for one batch."""
    return best_split(operations, slices=slices).cost.latency_s
