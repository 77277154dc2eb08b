"""In which tier a request's blocks go, as memory and the plan have it."""

from tandem.memory.growth_reserve import growth_reserve
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.rows import UNLIMITED
from tandem.scheduler.sequence import Sequence


def device_limit(sequence: Sequence, config: SchedulerConfig, total: BlockNeed) -> int:
    """Leading blocks of a request to keep on the device; the others go to the host.

    `auto`: all, unless the longest it may become exceeds the device's pool; then as many as the
    plan says, or half of the pool, or all of it where one request runs at a time. `split` forces
    about half of the prompt onto the host. In both, what the host cannot hold stays on the device.
    """
    size = config.block_size
    longest = -(-(sequence.limit - 1) // size)
    if config.kv_placement == "device":
        return UNLIMITED
    if config.kv_placement == "host":
        return 0
    if config.kv_placement == "split":
        prompt_blocks = -(-sequence.num_prompt // size)
        return min(max(prompt_blocks // 2, longest - total.host), total.device)
    if longest <= total.device:
        return UNLIMITED
    usual = total.device // 2 if config.max_num_seqs > 1 else total.device
    planned = min(config.split_blocks, total.device) or usual
    return max(planned, longest - total.host)


def reserve(growing: int, total: BlockNeed) -> BlockNeed:
    """Room on the device for rows that run already to grow a little before the next one comes.

    Args:
        growing: of those, the ones that may still begin a block.
    """
    return BlockNeed(growth_reserve(growing, total.device), 0)
