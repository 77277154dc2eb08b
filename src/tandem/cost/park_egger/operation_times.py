"""What an operation of a decoder layer costs each resource (Park and Egger, section 4.1)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """Profiled times of one operation for one batch.

    Attributes:
        cpu_s, gpu_s: its compute on either device: `C` and `G`.
        weight_link_s, kv_link_s: to bring its weights (once per layer) and its keys or values (once
            per batch) to the GPU; together `H`.
        weight_decompress_s, kv_decompress_s: likewise to decompress them there; together `D`.
        weight_storage_s: to bring its weights, uncompressed, from NVMe to the GPU: `S`; 0 if they
            do not lie there.
    """

    name: str
    cpu_s: float
    gpu_s: float = 0.0
    weight_link_s: float = 0.0
    kv_link_s: float = 0.0
    weight_decompress_s: float = 0.0
    kv_decompress_s: float = 0.0
    weight_storage_s: float = 0.0

    @property
    def link_s(self) -> float:
        """`H`: weights and one batch's keys or values over the link."""
        return self.weight_link_s + self.kv_link_s

    def in_pieces(self, count: int) -> "tuple[OperationTimes, ...]":
        """`count` equal operations that together are this one."""
        piece = (
            self.cpu_s / count,
            self.gpu_s / count,
            self.weight_link_s / count,
            self.kv_link_s / count,
            self.weight_decompress_s / count,
            self.kv_decompress_s / count,
            self.weight_storage_s / count,
        )
        return tuple(OperationTimes(f"{self.name}.{index}", *piece) for index in range(count))


def split_operations(
    operations: Iterable[OperationTimes], names: Collection[str], pieces: int
) -> tuple[OperationTimes, ...]:
    """The list with each of the named operations in equal pieces (section 3.2).

    Raises:
        ValueError: fewer than one piece, or a name that is not in the list.
    """
    given = tuple(operations)
    unknown = sorted(set(names) - {op.name for op in given})
    if pieces < 1 or unknown:
        raise ValueError(f"{pieces} pieces of unknown operations {unknown}")
    return tuple(
        piece for op in given for piece in (op.in_pieces(pieces) if op.name in names else (op,))
    )
