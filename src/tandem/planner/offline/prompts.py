"""How much work a batch's prompts are."""

from typing import NamedTuple

from tandem.cost.stage import AttentionWork
from tandem.spec.tier import Tier


class PromptLoad(NamedTuple):
    """Some tokens of equal prompts, as `Load` is asked.

    Attributes:
        rows, prompt: of the whole batch, whose attention is priced at once.
        passes: how often a prompt's keys are read.
    """

    tokens: int
    logits: int
    rows: int
    prompt: int
    passes: int = 1

    def num_queries(self, tier: Tier) -> int:
        """Prompts are computed on the accelerator."""
        return self.tokens if tier is Tier.DEVICE else 0

    def num_appended(self, tier: Tier) -> int:
        """Keys and values drain from there."""
        return self.num_queries(tier)

    def seen(self, tier: Tier, window: int) -> AttentionWork:
        """Attention within the prompts, in a layer that sees `window` positions (0: all)."""
        if tier is Tier.HOST:
            return AttentionWork(0, 0, 0)
        seen = min(self.prompt, window or self.prompt)
        pairs = seen * (seen + 1) // 2 + (self.prompt - seen) * seen
        return AttentionWork(
            self.rows * self.prompt, self.rows * pairs, self.rows * self.prompt * self.passes
        )
