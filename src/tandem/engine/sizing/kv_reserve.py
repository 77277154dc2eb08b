"""How much memory weights leave to the KV cache. Pure."""

from dataclasses import dataclass

from tandem.engine.sizing.capacities import Capacities
from tandem.memory.page import KVPageSpec
from tandem.spec.config import EngineConfig
from tandem.spec.tier import Tier
from tandem.spec.units import GIB

_KV_SHARE = 0.1
"""Of the accelerator's memory, most that streaming layers makes free for the KV cache."""
_MOST_FOR_DISK_BYTES = 2 * GIB
"""Of the host's, likewise, if a layer would have to be read from disk in every step for it."""


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


@dataclass(frozen=True, slots=True)
class HostKV:
    """What weights leave to the KV cache in host memory beside an accelerator.

    Attributes:
        request_blocks: of a request that must fit, 0 where none was asked for.
        block_bytes, device_block_bytes: of one KV block there and on the accelerator.
        beside_device: whether the accelerator holds a part of it.
    """

    request_blocks: int = 0
    block_bytes: int = 1
    device_block_bytes: int = 1
    beside_device: bool = True

    def least_bytes(self, device_bytes: int) -> int:
        """If the accelerator has so much for KV."""
        on_device = device_bytes // self.device_block_bytes if self.beside_device else 0
        return max(0, self.request_blocks - on_device) * self.block_bytes


def host_kv(config: EngineConfig, page: KVPageSpec, tokens: int) -> HostKV:
    """For a request of `tokens`, as far as its length or its place was asked for."""
    if config.strategy == "gpu-only" or config.kv_placement == "device":
        return HostKV()
    asked = config.max_model_len is not None
    on_host = config.kv_placement == "host"
    if not (asked or on_host):
        return HostKV()
    blocks = page.blocks_for_tokens(tokens) if asked else 1
    sizes = (page.on(Tier.HOST).bytes_per_block, page.bytes_per_block)
    return HostKV(blocks, *sizes, beside_device=not on_host)


def kv_reserve(page: KVPageSpec, tokens: int, capacities: Capacities, *, whole: bool) -> KVReserve:
    """For a request of `tokens`.

    Args:
        whole: no less will do: the length was asked for, and no other memory takes a part.
    """
    request = page.blocks_for_tokens(tokens) * page.bytes_per_block
    if whole:
        return KVReserve(request, request)
    share = min(request, int(_KV_SHARE * capacities.device_bytes))
    if capacities.device_location == "host":
        share = min(share, _MOST_FOR_DISK_BYTES)
    return KVReserve(page.bytes_per_block, max(page.bytes_per_block, share))
