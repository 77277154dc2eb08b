"""What copies of KV blocks over the link are predicted to take."""

from dataclasses import dataclass
from typing import NamedTuple


class CopyTimes(NamedTuple):
    """Seconds of one program's copies of KV blocks; 0: there are none.

    Attributes:
        in_s: to the accelerator. out_s: to the host.
    """

    in_s: float = 0.0
    out_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PagePrice:
    """Of copies of whole KV blocks, all layers, over the link.

    Attributes:
        start_in_s: of each copy to the accelerator. block_in_s: of each block in it.
        start_out_s, block_out_s: likewise to the host.
    """

    start_in_s: float
    block_in_s: float
    start_out_s: float
    block_out_s: float

    def in_s(self, blocks: int) -> float:
        """Bringing blocks to the accelerator; 0 for none."""
        return self.start_in_s + blocks * self.block_in_s if blocks else 0.0

    def out_s(self, blocks: int) -> float:
        """Bringing them to the host."""
        return self.start_out_s + blocks * self.block_out_s if blocks else 0.0
