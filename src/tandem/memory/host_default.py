"""How much of the host's memory is used where nobody says so (ADR 0024). Pure."""

from tandem.memory.margin import margin_bytes
from tandem.memory.page import KVPageSpec
from tandem.spec.tier import Tier
from tandem.spec.units import GIB

DEFAULT_HOST_KV_BYTES = 8 * GIB
"""Of KV in host memory: more is rarely of use, and what is pinned is taken at once."""
_TAKEN_BYTES = 2 * GIB
_MOST_TAKEN_SHARE = 8  # at most an eighth of a small memory


def default_host_blocks(page: KVPageSpec, tokens: int) -> int:
    """Of KV in host memory where no size was asked for; a request of `tokens` fits."""
    most = DEFAULT_HOST_KV_BYTES // page.on(Tier.HOST).bytes_per_block
    return max(most, page.blocks_for_tokens(tokens))


def fillable_host_bytes(memory_bytes: int) -> int:
    """Of a whole machine's memory, what weights and KV may fill.

    An engine asks what is available, and adds up what it takes beside them. Of a machine that is
    only described, 2 GiB are assumed for both: the system, Python with its libraries, staging.
    """
    taken = min(_TAKEN_BYTES, memory_bytes // _MOST_TAKEN_SHARE)
    return memory_bytes - taken - margin_bytes(memory_bytes - taken)
