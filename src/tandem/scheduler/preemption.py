"""What becomes of a preempted request's KV: copied to the host and back, or computed again, or both
at once on its way back.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tandem.cost.kvpr.restore import best_split
from tandem.cost.prefill_time import prefill_s
from tandem.cost.step_prices import StepPrices, StepWork, TierWork


class Beside(NamedTuple):
    """What else the accelerator does while a request comes back.

    Attributes:
        decodes: rows that decode. keys: tokens that they see on the accelerator, in all.
        prompts: some are being read, or wait to be.
    """

    decodes: int = 0
    keys: float = 0.0
    prompts: bool = False


class WayBack(NamedTuple):
    """How a request whose KV lies on the host comes to the device.

    Attributes:
        head: leading blocks that are not copied: there already, or computed again beside the copy.
        time_s: until all is there, and what the others lose by it.
    """

    head: int
    time_s: float


@dataclass(frozen=True, slots=True)
class PreemptionRule:
    """Compares the link's time with the accelerator's, for each request.

    Both at once is KVPR's trade (`cost/kvpr/restore.py`; docs/papers/kvpr.md says what it comes
    to). A copy costs nobody anything, but each of the rows that decode in the steps that compute
    waits for as long as these take longer, and prompts wait for the whole of it.

    Args:
        block_size: tokens of a block. max_tokens: of a step.
        launch_ahead_steps: sweeps that have been submitted before the first that computes.
        always_both: compute whatever makes a request come back sooner, whoever waits for it.
    """

    prices: StepPrices
    block_size: int
    max_tokens: int
    launch_ahead_steps: int = 2
    always_both: bool = False

    def swaps(self, blocks: int, ready: int, computed: int, beside: Beside) -> bool:
        """Whether copying `blocks` to the host and bringing them back takes less than computing
        them again.

        Args:
            ready: tokens at the beginning that others keep on the device. computed: all that would
                be lost, those included.
        """
        again_s = prefill_s(self.prices, ready, computed, beside.decodes, self.max_tokens)
        back = self.way_back(computed, ready // self.block_size, 0, beside)
        return self.prices.pages.out_s(blocks) + back.time_s < again_s

    def way_back(self, computed: int, ready: int, queued: int, beside: Beside) -> WayBack:
        """The best for a request of `computed` tokens, of which something is copied in any case.

        Args:
            ready: leading blocks that the device has. queued: blocks to be copied before its own.
        """
        most = (computed - 1) // self.block_size

        def copying_s(head: int) -> float:
            return self.prices.pages.in_s(queued + most + 1 - head)

        def computing_s(head: int) -> float:
            return self._until_computed_s(ready, head, beside)

        copied = WayBack(ready, copying_s(ready))
        if ready >= most or (beside.prompts and not self.always_both):
            return copied
        head = best_split(ready, most, computing_s, copying_s)
        time_s = max(computing_s(head), copying_s(head))
        if not self.always_both:
            time_s += beside.decodes * self._added_s(ready, head, beside)
        return WayBack(head, time_s) if time_s < copied.time_s else copied

    def _added_s(self, ready: int, head: int, beside: Beside) -> float:
        """What computing adds to the steps that do it."""
        first, total = ready * self.block_size, head * self.block_size
        return prefill_s(self.prices, first, total, beside.decodes, self.max_tokens)

    def _until_computed_s(self, ready: int, head: int, beside: Beside) -> float:
        """How long these steps take, after those that are under way, one after the other."""
        if head == ready:
            return 0.0
        steps = -(-(head - ready) * self.block_size // max(1, self.max_tokens - beside.decodes))
        steps += self.launch_ahead_steps
        return self._added_s(ready, head, beside) + steps * self._sweep_s(beside)

    def _sweep_s(self, beside: Beside) -> float:
        """In which the others decode alone; 0 if nobody does."""
        decodes, prices = beside.decodes, self.prices
        if not decodes:
            return 0.0
        seen = TierWork(decodes, beside.keys, beside.keys)
        return prices.forecast(StepWork(decodes, 0, decodes, seen, TierWork())).time_s
