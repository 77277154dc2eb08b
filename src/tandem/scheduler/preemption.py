"""What becomes of a preempted request's KV: copied to the host and back, or computed again."""

from dataclasses import dataclass

from tandem.cost.prefill_time import prefill_s
from tandem.cost.step_prices import StepPrices


@dataclass(frozen=True, slots=True)
class PreemptionRule:
    """Compares the link's time with the accelerator's, for each request.

    Both at once, as KVPR does it, is left out: where a token takes c seconds to compute and k to
    copy, the best mix saves k / (c + k) of the copies, and takes as long from everybody else
    (`cost/kvpr/restore.py` has the sum; docs/papers/kvpr.md what it comes to).

    Args:
        max_tokens: of a step.
    """

    prices: StepPrices
    max_tokens: int

    def swaps(self, blocks: int, ready: int, computed: int, decodes: int) -> bool:
        """Whether copying `blocks` to the host and back takes less than computing them again.

        Args:
            ready: tokens at the beginning that others keep on the device. computed: all that would
                be lost, those included.
            decodes: rows that decode in the steps that would compute them.
        """
        pages = self.prices.pages
        again_s = prefill_s(self.prices, ready, computed, decodes, self.max_tokens)
        return pages.out_s(blocks) + pages.in_s(blocks) < again_s
