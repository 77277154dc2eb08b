"""Latency of a decoder layer cut at two points (Park and Egger, equations 5 to 12 and 14).

Corrected: `DC` sums to `j - 1`, not to `j`; weights on NVMe are stored uncompressed, so they leave
`D` as well as `H`; of them only those inside the GPU's slice count.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tandem.cost.park_egger.operation_times import OperationTimes
from tandem.spec.operations import Stage


@dataclass(frozen=True, slots=True)
class SplitCost:
    """Busy time of each resource during one layer; they work at the same time.

    Attributes:
        link_s: host to GPU, with the GPU's compute between batches (equation 14).
        decompress_s: on the GPU, with the wait for the first transfer (equation 8).
    """

    cpu_s: float
    link_s: float
    decompress_s: float = 0.0
    storage_s: float = 0.0

    @property
    def latency_s(self) -> float:
        """`L`: the busiest resource (equations 5, 9, 10)."""
        return max(self.cpu_s, self.link_s, self.decompress_s, self.storage_s)

    @property
    def idle_s(self) -> float:
        """Inter-stage imbalance: how long the resources wait for the busiest, summed."""
        busy = self.cpu_s + self.link_s + self.decompress_s + self.storage_s
        return 4 * self.latency_s - busy


def split_cost(
    operations: Sequence[OperationTimes],
    gpu: Stage,
    stored: Collection[int] = (),
    batches: int = 1,
) -> SplitCost:
    """Cost of computing the slice `gpu` on the GPU and the rest on the CPU.

    Args:
        stored: indices of operations inside the slice whose weights come from NVMe.
        batches: computed one after the other, layer by layer; times are those of one batch.

    Raises:
        ValueError: `stored` names an operation outside the slice or without weights on NVMe.
    """
    inside = range(gpu.start, gpu.end)
    if any(index not in inside or not operations[index].weight_storage_s for index in stored):
        raise ValueError(f"{sorted(stored)} must lie in {gpu} and have weights on NVMe")
    linked = [operations[index] for index in inside if index not in stored]
    slice_ = tuple(operations[gpu.start : gpu.end])
    outside = (*operations[: gpu.start], *operations[gpu.end :])
    first_s = 0.0
    if slice_:
        weight_s = 0.0 if gpu.start in stored else slice_[0].weight_link_s
        first_s = weight_s + slice_[0].kv_link_s
    kv_s, gpu_s = sum(op.kv_link_s for op in slice_), sum(op.gpu_s for op in slice_)
    decompress_s = sum(op.weight_decompress_s for op in linked)
    decompress_s += batches * sum(op.kv_decompress_s for op in slice_)
    return SplitCost(
        cpu_s=batches * sum(op.cpu_s for op in outside),
        link_s=sum(op.weight_link_s for op in linked) + batches * kv_s + (batches - 1) * gpu_s,
        decompress_s=decompress_s + first_s if decompress_s else 0.0,
        storage_s=sum(operations[index].weight_storage_s for index in stored),
    )
