"""How much work a lane's passing keys and values are, counted from its arrays (ADR 0026)."""

from dataclasses import dataclass

from tandem.cost.lane_work import count_attention
from tandem.cost.stage import AttentionWork
from tandem.plan.passing import PassingKV


@dataclass(frozen=True, slots=True)
class PassingWork:
    """One lane of one pass, or of the prompts' program.

    Attributes:
        slot, prefix: attention over the slot's pages and over recomputed ones, in one layer of each
            window that layers have.
        windows: of each layer.
        appended: tokens whose keys and values go into the slot.
        blocks: copied between the slot and the host in a layer; copies: how many copies these are.
        stored: new tokens whose keys and values go to the host; None: the lane is of prompts, whose
            whole blocks go there.
        entries: activations of prefixes that cross the link in a layer; entry_copies: in so many
            copies.
    """

    slot: dict[int, AttentionWork]
    prefix: dict[int, AttentionWork]
    windows: tuple[int, ...]
    appended: int
    blocks: int
    copies: int
    stored: int | None
    entries: int
    entry_copies: int

    def parts(self, layer: int) -> tuple[AttentionWork, ...]:
        """The layer's attention over passing keys, a kernel each."""
        window = self.windows[layer]
        found = (self.slot[window], self.prefix[window])
        return tuple(work for work in found if work.tokens)


def count_passing(
    passing: PassingKV | None, block_size: int, windows: tuple[int, ...]
) -> PassingWork | None:
    """Tokens, keys, pairs and bytes of a lane's passing part; None if it has none.

    Args:
        windows: of each layer of the model.
    """
    if passing is None:
        return None
    prefix = passing.prefix
    attention = None if prefix is None else prefix.attention
    return PassingWork(
        slot={w: count_attention(passing.attention, block_size, w) for w in set(windows)},
        prefix={w: count_attention(attention, block_size, w) for w in set(windows)},
        windows=windows,
        appended=len(passing.append.slots),
        blocks=len(passing.slot_blocks),
        copies=len(passing.runs),
        stored=None if passing.stored is None else len(passing.stored.slots),
        entries=0 if prefix is None else len(prefix.entries),
        entry_copies=0 if prefix is None else len(prefix.runs),
    )
