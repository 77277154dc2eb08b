"""Whether a prefix that is on the disk is read, or computed again."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.plan.events import StepTimes
from tandem.scheduler.fetching import FetchRule

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices

_WEIGHT = 0.2
_FORGOTTEN = 0.95
_MOST_DECODES_SHARE = 8
_REMEMBERED_STEPS = 64


@dataclass(frozen=True, slots=True)
class Found:
    """What the disk has of a prompt.

    Attributes:
        blocks: to be read; `queued` are to be read before them.
        fetched: blocks that must then be brought to the accelerator.
        ready: tokens at the beginning that are in memory; `after` those that are once all is read.
        total: of the prompt.
        decodes: rows that decode in the steps that would read the prompt.
    """

    blocks: int
    queued: int
    fetched: int
    ready: int
    after: int
    total: int
    decodes: int


class ReadRule:
    """Compares the disk's time, as it was measured of late, with that of computing.

    What prompts take is predicted from prices of steps; without them, it is what the latest steps
    took that read prompts. As long as one of both is unknown, all is read.

    Args:
        fetching: with the prices, and the link's time where there is a link.
    """

    def __init__(self, fetching: FetchRule) -> None:
        self._fetching = fetching
        self._block_s = 0.0
        self._token_s = 0.0
        self._prompts: dict[int, int] = {}

    def pays(self, found: Found) -> bool:
        """Whether reading ends before the tokens that it spares would have been computed."""
        spared_s = self._computed_s(found)
        if spared_s is None or not self._block_s:
            return True
        prices = self._fetching.prices
        link_s = prices.pages.in_s(found.fetched) if prices and found.fetched else 0.0
        if (found.queued + found.blocks) * self._block_s + link_s < spared_s:
            return True
        self._block_s *= _FORGOTTEN  # a disk that was slow once is tried again
        return False

    def was_read(self, time_s: float) -> None:
        """A block has been read."""
        self._block_s += (time_s - self._block_s) * (_WEIGHT if self._block_s else 1.0)

    def submitted(self, step: int, prompts: int, decodes: int) -> None:
        """A step reads so many tokens of prompts."""
        enough = prompts >= max(self._fetching.block_size, _MOST_DECODES_SHARE * decodes)
        if enough and len(self._prompts) < _REMEMBERED_STEPS:
            self._prompts[step] = prompts

    def retired(self, step: int, times: StepTimes | None) -> None:
        """A step has ended."""
        prompts = self._prompts.pop(step, 0)
        if prompts and times is not None:
            token_s = (times.end_s - times.start_s) / prompts
            self._token_s += (token_s - self._token_s) * (_WEIGHT if self._token_s else 1.0)

    def reprice(self, prices: "StepPrices") -> None:
        """From now on, go by these."""
        self._fetching = replace(self._fetching, prices=prices)

    def _computed_s(self, found: Found) -> float | None:
        if self._fetching.prices is not None:
            return self._fetching.spared_s(found.ready, found.after, found.total, found.decodes)
        return (found.after - found.ready) * self._token_s or None
