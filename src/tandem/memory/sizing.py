"""How many KV blocks fit in each tier."""

from dataclasses import dataclass

from tandem.memory.budget import MemoryBudget, describe_sum
from tandem.memory.page import KVPageSpec
from tandem.spec.errors import ShortOfMemoryError
from tandem.spec.tier import TIERS, Tier
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
    max_blocks: PoolSizes | None = None,
) -> PoolSizes:
    """Fill what weights, workspace and margin leave of each memory with KV blocks.

    Args:
        page: one rank's page in each tier.
        device, host: capacity and all other users of it; a host capacity of 0 makes no host pool.
        max_tokens: tokens of the longest request; both pools together must hold one.
        max_blocks: upper bounds, None for none.

    Raises:
        ShortOfMemoryError: other users alone exceed a memory, or one request of `max_tokens` does
            not fit in both tiers together.
    """
    sizes = PoolSizes(
        _blocks(page.on(Tier.DEVICE), device, max_blocks and max_blocks.device_blocks),
        _blocks(page.on(Tier.HOST), host, max_blocks and max_blocks.host_blocks),
    )
    if sizes.total_blocks < page.blocks_for_tokens(max_tokens):
        raise request_too_long(page, device, host, sizes, max_tokens)
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


def request_too_long(
    page: KVPageSpec,
    device: MemoryBudget,
    host: MemoryBudget,
    sizes: PoolSizes,
    tokens: int,
    tiers: tuple[Tier, ...] = TIERS,
) -> ShortOfMemoryError:
    """One request of `tokens` with KV needs more blocks than `tiers`, those it may use, have."""
    needed = page.blocks_for_tokens(tokens)
    there = [
        _left(budget, sizes.of(tier))
        for tier, budget in ((Tier.DEVICE, device), (Tier.HOST, host))
        if tier in tiers and (budget.capacity_bytes or tier is Tier.DEVICE)
    ]
    return ShortOfMemoryError(
        f"memory too small: one request of {tokens} tokens needs {needed} KV blocks of "
        f"{describe_block(page)}, but {' and '.join(there)}",
        param="max_model_len",
    )


def _left(budget: MemoryBudget, blocks: int) -> str:
    used = any(budget.used_bytes.values())
    taken = f" after {describe_sum(budget.used_bytes)}" if used else ""
    return (
        f"{budget.location} memory holds {blocks} (of {format_size(budget.capacity_bytes)}{taken})"
    )
