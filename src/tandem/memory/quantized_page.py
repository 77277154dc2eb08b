"""The layout of a page of quantized keys and values (contracts 7 and 9).

`[K|V][kv_head][token][element]` codes, then `[K|V][kv_head][group][2][token]` float16: scales and
minima, each as a row over tokens. An element is `code * scale + minimum`. Rows are head_dim rounded
up to runs of 32 elements; what is beyond head_dim repeats the last element, and means nothing.
In each run, byte i of a 4-bit page holds element i in its low and element 16 + i in its high half.
"""

from dataclasses import dataclass

CODE_RUN = 32
MAX_HEAD_DIM = 512
_LARGE_GROUP = 64
PAIR_BYTES = 4  # a group's scale and minimum


@dataclass(frozen=True, slots=True)
class QuantizedPage:
    """One block of one layer.

    Attributes:
        bits: per code, 8 or 4.

    Raises:
        ValueError: other bits, or a head size above 512.
    """

    bits: int
    kv_heads: int
    block_size: int
    head_dim: int

    def __post_init__(self) -> None:
        if self.bits not in (8, 4):
            raise ValueError(f"pages are quantized to 8 or 4 bits, not {self.bits}")
        if not 1 <= self.head_dim <= MAX_HEAD_DIM:
            raise ValueError(
                f"head_dim of quantized pages must be 1 to {MAX_HEAD_DIM}, not {self.head_dim}"
            )

    @property
    def row_elements(self) -> int:
        """Codes of one head of one token: head_dim rounded up to whole runs."""
        return -(-self.head_dim // CODE_RUN) * CODE_RUN

    @property
    def group_size(self) -> int:
        """Elements that share a scale and a minimum: 64, or 32 where rows are no multiple."""
        return CODE_RUN if self.row_elements % _LARGE_GROUP else _LARGE_GROUP

    @property
    def groups(self) -> int:
        """Groups of one row."""
        return self.row_elements // self.group_size

    @property
    def row_bytes(self) -> int:
        """Bytes of one row's codes."""
        return self.row_elements * self.bits // 8

    @property
    def code_bytes(self) -> int:
        """All codes; scales begin there."""
        return self._rows * self.row_bytes

    @property
    def page_bytes(self) -> int:
        """Codes, scales and minima."""
        return self.code_bytes + self._rows * self.groups * PAIR_BYTES

    @property
    def _rows(self) -> int:
        return 2 * self.kv_heads * self.block_size
