"""In which tier a request's blocks go, as memory and the plan have it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from tandem.memory.growth_reserve import growth_reserve
from tandem.scheduler.config import HALF, SchedulerConfig
from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.rows import UNLIMITED
from tandem.scheduler.sequence import Sequence

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices

_NOTICEABLE = 0.02
"""Of a prompt: less is hardly a block, and measured rates vary as much from step to step."""


def device_limit(sequence: Sequence, config: SchedulerConfig, total: BlockNeed) -> int:
    """Leading blocks of a request to keep on the device; the others go to the host.

    `auto`: all, unless the longest it may become exceeds the device's pool; then as many as the
    plan says, or half of the pool, or all of it where one request runs at a time: not the share of
    `split`, which a faster device's tier would be filled by, of a request that exceeds it, so that
    nobody else ran. `split` forces a part of the prompt onto the host (`split_share`, while there
    is room). In both, what the host cannot hold stays on the device.
    """
    size = config.block_size
    longest = -(-(sequence.limit - 1) // size)
    if config.kv_placement == "device":
        return UNLIMITED
    if config.kv_placement == "host":
        return 0
    if config.kv_placement == "split":
        prompt_blocks = -(-sequence.num_prompt // size)
        planned = min(
            int(prompt_blocks * config.split_share), _most_split(prompt_blocks, config, total)
        )
        return min(max(planned, longest - total.host), total.device)
    if longest <= total.device:
        return UNLIMITED
    usual = total.device // 2 if config.max_num_seqs > 1 else total.device
    planned = min(config.split_blocks, total.device) or usual
    return max(planned, longest - total.host)


def _most_split(prompt_blocks: int, config: SchedulerConfig, total: BlockNeed) -> int:
    """Of a prompt under `split`, most blocks on the device: what each has there if as many run as
    may; or else half of it, or more if more of all memory is the device's. Where more of each were
    there, it would be full when most of the host is empty.
    """
    share = max(HALF, total.device / max(1, total.device + total.host))
    return max(int(prompt_blocks * share), total.device // config.max_num_seqs)


def split_share(prices: "StepPrices | None") -> float:
    """Of a prompt, what lies on the device under `split`: so much that both tiers attend to their
    parts for as long, reading keys, as a decode does; half where that is not known.
    """
    if prices is None:
        return HALF
    both_s = prices.device.key_s + prices.host.key_s
    return prices.host.key_s / both_s if both_s > 0 else HALF


def renewed_split_share(config: SchedulerConfig, prices: "StepPrices") -> SchedulerConfig:
    """The same settings, with the share that these prices give if it differs by as much as matters:
    for requests that begin from now on. Others' blocks stay where they are.
    """
    share = split_share(prices)
    if abs(share - config.split_share) < _NOTICEABLE:
        return config
    return replace(config, split_share=share)


def reserve(growing: int, total: BlockNeed) -> BlockNeed:
    """Room on the device for rows that run already to grow a little before the next one comes.

    Args:
        growing: of those, the ones that may still begin a block.
    """
    return BlockNeed(growth_reserve(growing, total.device), 0)
