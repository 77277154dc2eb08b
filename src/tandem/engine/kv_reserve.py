"""How much memory weights leave to the KV cache. Pure."""

from dataclasses import dataclass

from tandem.memory.page import KVPageSpec

_KV_SHARE = 0.1
"""Of the accelerator's memory, most that streaming layers makes free for the KV cache."""


@dataclass(frozen=True, slots=True)
class KVReserve:
    """What weights leave to the KV cache where the maths is done.

    Attributes:
        least_bytes: without which nothing runs.
        wanted_bytes: where there is room for it.
    """

    least_bytes: int
    wanted_bytes: int

    def of(self, left_bytes: int) -> int:
        """If the fewest weights leave so much."""
        return max(self.least_bytes, min(self.wanted_bytes, left_bytes))


def kv_reserve(page: KVPageSpec, tokens: int, device_bytes: int, *, whole: bool) -> KVReserve:
    """For a request of `tokens`.

    Args:
        device_bytes: all the memory where the maths is done.
        whole: no less will do: the length was asked for, and no other memory takes a part.
    """
    request = page.blocks_for_tokens(tokens) * page.bytes_per_block
    if whole:
        return KVReserve(request, request)
    share = min(request, int(_KV_SHARE * device_bytes))
    return KVReserve(page.bytes_per_block, max(page.bytes_per_block, share))
