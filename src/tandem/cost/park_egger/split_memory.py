"""Where weights and KV cache of a split layer lie (Park and Egger, sections 3.1, 4.3 and 5.4)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tandem.cost.tier_bytes import TierBytes
from tandem.spec.operations import Stage


@dataclass(frozen=True, slots=True)
class OperationSizes:
    """Bytes of one operation in one layer.

    Attributes:
        kv_bytes: keys or values of one batch.
    """

    weight_bytes: int
    kv_bytes: int = 0


def split_memory(
    sizes: Sequence[OperationSizes],
    gpu: Stage,
    *,
    layers: int,
    stored: Collection[int] = (),
    batches: int = 1,
    drives: int = 1,
) -> TierBytes:
    """Memory of `layers` equal layers cut in the same place.

    What the CPU computes with stays pageable; what crosses the link is pinned, before generation.
    The GPU holds the slice's weights of two layers, the one computed and the one coming, and the
    KV cache of one batch. Weights on NVMe lie on each of `drives` drives (section 3.4).
    """
    slice_ = range(gpu.start, gpu.end)
    total = TierBytes()
    for index, size in enumerate(sizes):
        kv_bytes = layers * batches * size.kv_bytes
        weight_bytes = layers * size.weight_bytes
        if index not in slice_:
            total += TierBytes(pageable_bytes=weight_bytes + kv_bytes)
            continue
        total += TierBytes(2 * size.weight_bytes + size.kv_bytes, pinned_bytes=kv_bytes)
        if index in stored:
            total += TierBytes(storage_bytes=drives * weight_bytes)
        else:
            total += TierBytes(pinned_bytes=weight_bytes)
    return total
