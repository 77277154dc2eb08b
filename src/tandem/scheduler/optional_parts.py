"""Parts of a scheduler that only some configurations have; each is imported if it is made."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices
    from tandem.memory.disk_index import DiskIndex
    from tandem.scheduler.config import SchedulerConfig
    from tandem.scheduler.first_tokens import FirstTokenRule
    from tandem.scheduler.hand_over_timer import HandOverTimer
    from tandem.scheduler.kv_manager import KVManager
    from tandem.scheduler.preemption import PreemptionRule
    from tandem.scheduler.prefix_disk import PrefixDisk
    from tandem.scheduler.prefix_tiers import PrefixTiers
    from tandem.scheduler.sequence import Sequence
    from tandem.scheduler.step_timer import StepTimer
    from tandem.scheduler.strategies.base import Strategy


def preemption_rule(
    config: "SchedulerConfig", prices: "StepPrices | None"
) -> "PreemptionRule | None":
    """What becomes of preempted KV by predicted times; None: they are unknown, or it is said."""
    if prices is None or config.preemption_mode not in ("auto", "mix"):
        return None
    from tandem.scheduler.preemption import PreemptionRule

    return PreemptionRule(
        prices,
        config.block_size,
        config.max_num_batched_tokens,
        config.launch_ahead_steps,
        always_both=config.preemption_mode == "mix",
    )


def two_tiers(
    config: "SchedulerConfig", kv: "KVManager", prices: "StepPrices | None"
) -> "PrefixTiers | None":
    """The prefix cache's copies on the host; None: one of the tiers has no room for it."""
    most = int(config.host_prefix_share * kv.pools[Tier.HOST].num_blocks)
    if not (most and kv.pools[Tier.DEVICE].num_blocks and kv.prefix.enabled):
        return None
    from tandem.scheduler.fetching import FetchRule
    from tandem.scheduler.prefix_tiers import PrefixTiers

    rule = FetchRule(prices, config.block_size, config.max_num_batched_tokens)
    return PrefixTiers(kv.pools, kv.prefix, most, rule)


def third_tier(
    config: "SchedulerConfig",
    kv: "KVManager",
    prices: "StepPrices | None",
    tiers: "PrefixTiers | None",
    stored: "DiskIndex | None",
) -> "PrefixDisk | None":
    """The prefix cache's copies on a disk, below the host's or else the device's."""
    if stored is None:
        return None
    from tandem.scheduler.fetching import FetchRule
    from tandem.scheduler.prefix_disk import PrefixDisk
    from tandem.scheduler.prefix_room import WholePool
    from tandem.scheduler.reading import ReadRule

    room = tiers or WholePool(kv.pools[Tier.DEVICE], kv.prefix)
    rule = FetchRule(prices, config.block_size, config.max_num_batched_tokens)
    return PrefixDisk(stored, room, kv, ReadRule(rule))


def step_timer(config: "SchedulerConfig", prices: "StepPrices | None") -> "StepTimer | None":
    """What corrects the price list as steps report their times, with `--calibrate`."""
    if prices is None or not config.calibrate:
        return None
    from tandem.scheduler.step_timer import StepTimer

    return StepTimer(prices, resident=config.layers.all_resident)


def hand_over_timer(
    config: "SchedulerConfig", strategy: "Strategy", prices: "StepPrices | None"
) -> "HandOverTimer | None":
    """What learns how long hand-overs to the host take: under `auto`, which is never to be slower
    than the accelerator alone, whatever its predictions leave out. `neo` and `apex` choose as the
    papers do.
    """
    if prices is None or strategy.name != "auto":
        return None
    from tandem.scheduler.hand_over_timer import HandOverTimer

    return HandOverTimer(config.num_layers, prices.launch_s)


def first_token_rule(
    config: "SchedulerConfig",
    prices: "StepPrices | None",
    clock: Callable[[], float] | None,
    sequence_of: "Callable[[int], Sequence]",
) -> "FirstTokenRule | None":
    """The order of prompts under `--ttft-bound`."""
    if config.ttft_bound_s is None or clock is None or prices is None:
        return None
    from tandem.scheduler.first_tokens import FirstTokenRule

    return FirstTokenRule(config.ttft_bound_s, clock, sequence_of)
