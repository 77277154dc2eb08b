"""How much work a lane brings to a sweep, from numbers of rows and lengths."""

from typing import NamedTuple, Protocol

from tandem.cost.stage import AttentionWork
from tandem.cost.varying_rows import VaryingRows
from tandem.spec.tier import Tier

_NONE = AttentionWork(0, 0, 0)


class Load(Protocol):
    """What the price of an operation depends on: a lane's tokens, keys and logits."""

    @property
    def tokens(self) -> int:
        """Query tokens."""
        ...

    @property
    def logits(self) -> int:
        """Rows whose logits are wanted."""
        ...

    def num_queries(self, tier: Tier) -> int:
        """Query tokens that see keys in a tier."""
        ...

    def num_appended(self, tier: Tier) -> int:
        """Tokens whose keys and values go to a tier."""
        ...

    def seen(self, tier: Tier, window: int) -> AttentionWork:
        """Attention over a tier's keys, in a layer that sees `window` positions (0: all)."""
        ...


class TierLoad(NamedTuple):
    """Query tokens over the keys of one tier.

    Attributes:
        rows: decoding, a token each, over `context` tokens.
        chunk: tokens of prompts, after `offset` tokens of theirs; below 0 if they are several.
        share: of the keys that they see, those in this tier.
    """

    rows: int = 0
    context: float = 0.0
    chunk: int = 0
    offset: float = 0.0
    share: float = 1.0

    @property
    def tokens(self) -> int:
        """Query tokens."""
        return self.rows + self.chunk

    def attention(self, window: int) -> AttentionWork:
        """In a layer that sees `window` positions (0: all before it)."""
        if not self.tokens:
            return _NONE
        keys = pairs = self.rows * _seen(self.context + 1, window)
        if self.chunk:
            middle = self.offset + (self.chunk + 1) / 2
            pairs += self.chunk * _seen(middle, window)
            keys += _seen(max(0.0, self.offset), window) + self.chunk
        return AttentionWork(self.tokens, round(pairs * self.share), round(keys * self.share))


class LaneLoad(NamedTuple):
    """One lane of a sweep.

    Attributes:
        logits: rows whose logits are wanted.
        split: query tokens that both tiers count, their keys lying in both.
        filled: prompts take all that those which decode leave of a step, so that its tokens are
            known however many these are.
        varying: else, what tokens sweeps have of which `tokens` is a mean; None: it is not said.
    """

    device: TierLoad = TierLoad()
    host: TierLoad = TierLoad()
    logits: int = 0
    split: int = 0
    filled: bool = False
    varying: VaryingRows | None = None

    @property
    def tokens(self) -> int:
        """Query tokens of both tiers."""
        device, host = self.device, self.host  # asked for often: without their properties
        return device.rows + device.chunk + host.rows + host.chunk - self.split

    def num_queries(self, tier: Tier) -> int:
        """Query tokens that see keys in a tier."""
        return self._part(tier).tokens

    def num_appended(self, tier: Tier) -> int:
        """As many: which tier a split row grows in is not told apart."""
        return self._part(tier).tokens

    def seen(self, tier: Tier, window: int) -> AttentionWork:
        """Attention over a tier's keys, in a layer that sees `window` positions (0: all)."""
        return self._part(tier).attention(window)

    def _part(self, tier: Tier) -> TierLoad:
        return self.device if tier is Tier.DEVICE else self.host


def _seen(context: float, window: int) -> float:
    return min(context, window) if window else context
