"""How much work a batch's prompts are."""

from typing import NamedTuple

from tandem.cost.stage import AttentionWork
from tandem.spec.tier import Tier


class PromptLoad(NamedTuple):
    """Some tokens of prompts, as `Load` is asked.

    Attributes:
        rows, prompt: of the whole batch, whose attention is priced at once; `prompt` in the mean.
        seen_tokens: of a prompt whose mean token sees as many as that of all prompts does, more
            than the mean: tokens of long prompts are many, and see many.
        passes: how often a prompt's keys are read.
    """

    tokens: int
    logits: int
    rows: int
    prompt: int
    seen_tokens: float
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
        tokens, longer = self.rows * self.prompt, self.seen_tokens
        seen = min(longer, window or longer)
        # of a token of the longer prompt, in the mean
        pairs = (seen * (seen + 1) / 2 + (longer - seen) * seen) / longer
        return AttentionWork(tokens, round(tokens * pairs), tokens * self.passes)
