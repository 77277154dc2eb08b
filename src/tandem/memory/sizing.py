"""How many KV blocks fit in each tier."""

from dataclasses import dataclass

from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.spec.errors import ConfigError
from tandem.spec.tier import Tier
from tandem.spec.units import format_size


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Blocks per tier."""

    device_blocks: int
    host_blocks: int

    @property
    def total_blocks(self) -> int:
        """Blocks of both tiers."""
        return self.device_blocks + self.host_blocks

    def of(self, tier: Tier) -> int:
        """Blocks of one tier."""
        return self.device_blocks if tier is Tier.DEVICE else self.host_blocks


def size_pools(
    page: KVPageSpec,
    device: MemoryBudget,
    host: MemoryBudget,
    *,
    max_tokens: int,
    max_blocks: int | None = None,
) -> PoolSizes:
    """Fill what weights, workspace and margin leave of each memory with KV blocks.

    Args:
        page: one rank's page in each tier.
        device, host: capacity and all other users of it; a host capacity of 0 makes no host pool.
        max_tokens: tokens of the longest request; both pools together must hold one.
        max_blocks: upper bound per tier, None for none.

    Raises:
        ConfigError: other users alone exceed a memory, or one request of `max_tokens` does not
            fit in both tiers together.
    """
    sizes = PoolSizes(
        _blocks(page.on(Tier.DEVICE), device, max_blocks),
        _blocks(page.on(Tier.HOST), host, max_blocks),
    )
    needed = page.blocks_for_tokens(max_tokens)
    if sizes.total_blocks < needed:
        raise ConfigError(_too_small(page, device, host, sizes, max_tokens), param="max_model_len")
    return sizes


def describe_block(page: KVPageSpec) -> str:
    """The size of a block, of both tiers where they differ."""
    size = format_size(page.bytes_per_block)
    if not page.converts:
        return size
    return f"{size}, on the host {format_size(page.on(Tier.HOST).bytes_per_block)}"


def _blocks(page: KVPageSpec, budget: MemoryBudget, max_blocks: int | None) -> int:
    blocks = budget.require() // page.bytes_per_block
    return blocks if max_blocks is None else min(blocks, max_blocks)


def _too_small(
    page: KVPageSpec,
    device: MemoryBudget,
    host: MemoryBudget,
    sizes: PoolSizes,
    max_tokens: int,
) -> str:
    needed = page.blocks_for_tokens(max_tokens)
    fitting = sizes.total_blocks * page.block_size
    lower = f", or lower --max-model-len to {fitting} or less" if fitting else ""
    return (
        f"memory too small: one request of {max_tokens} tokens needs {needed} KV blocks of "
        f"{describe_block(page)} ({format_size(needed * page.bytes_per_block)}), but "
        f"{_left(device, sizes.device_blocks)} and {_left(host, sizes.host_blocks)}; "
        f"raise --gpu-memory or --cpu-memory{lower}"
    )


def _left(budget: MemoryBudget, blocks: int) -> str:
    taken = f" after {budget.describe_used()}" if any(budget.used_bytes.values()) else ""
    return f"{budget.location} holds {blocks} ({format_size(budget.capacity_bytes)}{taken})"
