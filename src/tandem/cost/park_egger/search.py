"""The best split of a layer, by trying all (Park and Egger, section 4.2).

All `0 <= i <= j <= m` are tried, GPU-only and CPU-only included; the paper's `n (n - 1) / 2` pairs
are a part of them. With NVMe also every subset of the weights that can come from there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from tandem.cost.park_egger.operation_times import OperationTimes
from tandem.cost.park_egger.split_cost import SplitCost, split_cost
from tandem.spec.operations import Stage

_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """Where a layer is cut.

    Attributes:
        gpu: the slice on the GPU; the CPU computes the rest.
        stored: operations of the slice whose weights come from NVMe.
    """

    gpu: Stage
    stored: tuple[int, ...]
    cost: SplitCost


def two_cuts(count: int) -> Iterator[Stage]:
    """Every slice of `count` operations; the empty one once."""
    yield Stage(0, 0)
    for start in range(count):
        for end in range(start + 1, count + 1):
            yield Stage(start, end)


def cpu_first(count: int) -> Iterator[Stage]:
    """One cut: the CPU computes the beginning, the GPU the end."""
    return (Stage(start, count) for start in range(count + 1))


def gpu_first(count: int) -> Iterator[Stage]:
    """One cut: the GPU computes the beginning, the CPU the end."""
    return (Stage(0, end) for end in range(count + 1))


def best_split(
    operations: Sequence[OperationTimes],
    *,
    batches: int = 1,
    storage: bool = False,
    slices: Iterable[Stage] | None = None,
) -> LayerSplit:
    """The split of least latency; among equals the one of least imbalance, then the first.

    Args:
        storage: whether weights may come from NVMe.
        slices: what the GPU may compute; None: any contiguous slice.
    """
    stages = two_cuts(len(operations)) if slices is None else slices
    best: LayerSplit | None = None
    for gpu in stages:
        for stored in _stored_subsets(operations, gpu) if storage else ((),):
            split = LayerSplit(gpu, stored, split_cost(operations, gpu, stored, batches))
            if best is None or _better(split.cost, best.cost):
                best = split
    if best is None:
        raise ValueError("no slice to choose from")
    return best


def _better(cost: SplitCost, than: SplitCost) -> bool:
    margin_s = _TIE * than.latency_s
    if abs(cost.latency_s - than.latency_s) > margin_s:
        return cost.latency_s < than.latency_s
    return cost.idle_s < than.idle_s - margin_s


def _stored_subsets(operations: Sequence[OperationTimes], gpu: Stage) -> Iterator[tuple[int, ...]]:
    inside = [
        index for index in range(gpu.start, gpu.end) if operations[index].weight_storage_s > 0
    ]
    for size in range(len(inside) + 1):
        yield from combinations(inside, size)
