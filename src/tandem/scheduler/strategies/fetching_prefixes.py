"""Whether a waiting request begins with what the host has cached of it, brought to the device."""

from tandem.memory.prefix_cache import CachedBlock
from tandem.scheduler.rows import UNLIMITED
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.view import SchedulerView
from tandem.spec.tier import Tier


def worth_fetching(view: SchedulerView, sequence: Sequence, limit: int) -> list[CachedBlock]:
    """What a request may begin with if some of it is brought from the host, if that pays.

    Args:
        limit: leading blocks of it to keep on the device.
    """
    rule = view.fetching
    if rule is None or limit != UNLIMITED:
        return []
    across = view.kv.matched_across(sequence)
    hosted = sum(entry.tier is Tier.HOST for entry in across)
    if not hosted:
        return []
    size = view.config.block_size
    ready = size * next(i for i, entry in enumerate(across) if entry.tier is Tier.HOST)
    queued = view.kv.num_arriving() + hosted
    decodes = len(view.runnable.decodes)
    pays = rule.pays(queued, ready, len(across) * size, len(sequence.tokens), decodes)
    return across if pays else []
