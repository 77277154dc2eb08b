"""Correct a price list by what its terms were measured to take.

Five factors, each observed by itself: of the accelerator's linear stages, of its attention, of the
CPU's attention, and of copies of KV blocks in either direction. Each follows what is observed,
exponentially in its logarithm, within bounds.
"""

import math
from dataclasses import asdict, astuple, dataclass, replace

from tandem.cost.page_price import CopyTimes, PagePrice
from tandem.cost.prediction_ratios import PredictionRatios, RatioCounter
from tandem.cost.staircase import Staircase
from tandem.cost.step_prices import AttentionPrice, StepPrices, TermTimes

_ACCELERATOR_RATE = 0.1  # nobody else uses it: after fifty observations, 99% of the way
_HOST_RATE = 0.5  # others come and go, and rows on the host are seen to in some steps only
_COPY_RATE = 0.3  # they are rarer than steps, and others' copies may use the link meanwhile
_MOST = 8.0
_MOST_AT_ONCE = 4.0
_NOTICED = 0.02


@dataclass(frozen=True, slots=True)
class TermFactors:
    """How many times as long as the price list says terms take."""

    linear: float = 1.0
    attention: float = 1.0
    host: float = 1.0
    copies_in: float = 1.0
    copies_out: float = 1.0


class Calibrator:
    """A price list that follows what is observed; reads no clock.

    Attributes:
        prices: corrected; another object only when a factor has changed by 2% since the last one.
        factors: as of the last observation.
    """

    def __init__(self, given: StepPrices) -> None:
        self._given = self.prices = given
        self.factors = self._used = TermFactors()
        self._ratios = RatioCounter()

    def observe(self, said: TermTimes, measured: TermTimes) -> None:
        """A step, by the price list as it was given and as measured."""
        self._ratios.add(*_compared(said, measured, self.factors))
        now = self.factors
        self._take(
            replace(
                now,
                linear=_toward(now.linear, said.linear_s, measured.linear_s, _ACCELERATOR_RATE),
                attention=_toward(
                    now.attention, said.attention_s, measured.attention_s, _ACCELERATOR_RATE
                ),
                host=_toward(now.host, said.host_s, measured.host_s, _HOST_RATE),
            )
        )

    def observe_copies(self, said: CopyTimes, measured: CopyTimes) -> None:
        """Copies of KV blocks, likewise; they are no step, and no ratio is counted of them."""
        now = self.factors
        self._take(
            replace(
                now,
                copies_in=_toward(now.copies_in, said.in_s, measured.in_s, _COPY_RATE),
                copies_out=_toward(now.copies_out, said.out_s, measured.out_s, _COPY_RATE),
            )
        )

    def _take(self, factors: TermFactors) -> None:
        self.factors = factors
        if _differ(factors, self._used):
            self._used, self.prices = factors, scaled(self._given, factors)

    def ratios(self) -> PredictionRatios:
        """What predictions were worth since start, and are multiplied by now."""
        factors, ratios = self.factors, self._ratios
        return PredictionRatios(**asdict(factors), counts=tuple(ratios.counts), total=ratios.total)


def _compared(said: TermTimes, measured: TermTimes, factors: TermFactors) -> tuple[float, float]:
    """Seconds of the terms that a step has, predicted and measured."""
    terms = zip(said, measured, (factors.linear, factors.attention, factors.host), strict=True)
    both = [(factor * said_s, s) for said_s, s, factor in terms if said_s > 0 and s > 0]
    return sum(said_s for said_s, _ in both), sum(s for _, s in both)


def scaled(prices: StepPrices, factors: TermFactors) -> StepPrices:
    """A price list with its terms multiplied."""
    return replace(
        prices,
        linear=_stairs(prices.linear, factors.linear),
        layer=_stairs(prices.layer, factors.linear),
        head=_stairs(prices.head, factors.linear),
        merge=_stairs(prices.merge, factors.linear),
        device=_attention(prices.device, factors.attention),
        host=_attention(prices.host, factors.host),
        pages=_pages(prices.pages, factors),
    )


def _stairs(stairs: Staircase, factor: float) -> Staircase:
    return Staircase(stairs.sizes, tuple(factor * seconds for seconds in stairs.seconds))


def _attention(price: AttentionPrice, factor: float) -> AttentionPrice:
    return AttentionPrice(
        factor * price.start_s, factor * price.key_s, factor * price.pair_s, factor * price.query_s
    )


def _pages(price: PagePrice, factors: TermFactors) -> PagePrice:
    into, out = factors.copies_in, factors.copies_out
    return PagePrice(
        into * price.start_in_s,
        into * price.block_in_s,
        out * price.start_out_s,
        out * price.block_out_s,
    )


def _toward(factor: float, said_s: float, measured_s: float, rate: float) -> float:
    """A part of the way to what was observed."""
    if said_s <= 0 or measured_s <= 0:
        return factor
    ratio = min(max(measured_s / said_s / factor, 1 / _MOST_AT_ONCE), _MOST_AT_ONCE)
    return min(max(factor * ratio**rate, 1 / _MOST), _MOST)


def _differ(one: TermFactors, other: TermFactors) -> bool:
    pairs = zip(astuple(one), astuple(other), strict=True)
    return any(abs(math.log(new / old)) > _NOTICED for new, old in pairs)
