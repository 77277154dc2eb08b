"""Whether a prefix that the host has cached is brought to the device, or computed again there."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandem.cost.prefill_time import prefill_s

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices


_BESIDE_QUERIES_S = 0.002
_COPIED_UNPRICED = 4


@dataclass(frozen=True, slots=True)
class FetchRule:
    """Compares the link's time with the accelerator's.

    Args:
        prices: None: nothing is known of either, and all is fetched.
        max_tokens: of a step.
    """

    prices: "StepPrices | None"
    block_size: int
    max_tokens: int

    def pays(self, queued: int, ready: int, fetched: int, total: int, decodes: int) -> bool:
        """Whether copies end before the prompt that they spare would have been computed.

        Args:
            queued: blocks to copy, those before them in the queue included.
            ready: tokens at the beginning that are on the device; `fetched` those that are if all
                is copied. total: of the prompt.
            decodes: rows that decode in the steps that read the prompt; what these take is not the
                prompt's.
        """
        if self.prices is None:
            return True
        return self.prices.pages.in_s(queued) < self.spared_s(ready, fetched, total, decodes)

    def spared_s(self, ready: int, found: int, total: int, decodes: int) -> float:
        """What computing takes less if the first `found` tokens are there instead of `ready`; there
        must be prices.
        """
        return self._prefill_s(ready, total, decodes) - self._prefill_s(found, total, decodes)

    def worth_keeping(self) -> bool:
        """Whether a block may ever be fetched: whether it takes less than its share of a step that
        reads as many tokens of prompts as it can.
        """
        if self.prices is None:
            return True
        share = self.block_size / self.max_tokens
        return self.prices.pages.block_in_s < share * self._prefill_s(0, self.max_tokens, 0)

    def copied_beside(self, *, hosted: bool) -> int:
        """Blocks that a step may copy to the host so that nothing else waits long, at least one.

        Args:
            hosted: rows' queries take the same way, layer by layer. Otherwise a step's tokens do,
                at its end, and it takes at least as long as reading the weights.
        """
        if self.prices is None:
            return _COPIED_UNPRICED
        pages = self.prices.pages
        time_s = _BESIDE_QUERIES_S
        if not hosted:
            time_s = max(time_s, self.prices.linear.at(1) / 2)
        left_s = time_s - pages.start_out_s
        return (
            max(1, int(left_s / pages.block_out_s)) if pages.block_out_s > 0 else _COPIED_UNPRICED
        )

    def _prefill_s(self, first: int, total: int, decodes: int) -> float:
        assert self.prices is not None
        return prefill_s(self.prices, first, total, decodes, self.max_tokens)
