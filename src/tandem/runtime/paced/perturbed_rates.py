"""Rates of the emulated accelerator and its link, as they truly are there.

The planner never reads them: in paced runs it learns them from probes, as on a real device. For
verification the truth may deviate from the description, and from the roofline in ways that the
planner's forms do not contain.
"""

import random
from dataclasses import dataclass, replace

from tandem.cost.rates import DeviceRates, LinkRates, accelerator_rates, d2h_rates, h2d_rates
from tandem.cost.stage import CostBreakdown
from tandem.plan.program import Queue
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Perturbation:
    """How the truth deviates from the roofline; the default does not.

    Attributes:
        seed: of the factors and the jitter.
        terms: every rate and overhead is multiplied by a factor drawn from `1 ± terms`.
        tile_rows: products run in tiles of so many tokens, so that compute time is a staircase.
        jitter: every duration is multiplied by a factor drawn from `1 ± jitter`.
    """

    seed: int = 0
    terms: float = 0.0
    tile_rows: int = 1
    jitter: float = 0.0

    def whole_tiles(self, tokens: int) -> int:
        """Tokens that a product really computes."""
        return -(-tokens // self.tile_rows) * self.tile_rows


class PerturbedRates:
    """Factors are drawn anew from the seed, so that rates of another type have the same ones."""

    def __init__(self, hardware: HardwareSpec, dtype: DType, change: Perturbation) -> None:
        self._change = change
        draw, codes = random.Random(change.seed), random.Random(f"{change.seed} codes")
        device = self._device(accelerator_rates(hardware, dtype), draw)
        self.device: DeviceRates = replace(
            device,
            quantize_share=device.quantize_share * self._factor(codes),
            dequantize_share=device.dequantize_share * self._factor(codes),
        )
        self.links: dict[Queue, LinkRates] = {
            Queue.H2D: self._link(h2d_rates(hardware), draw),
            Queue.D2H: self._link(d2h_rates(hardware), draw),
        }
        self.links[Queue.WEIGHTS] = self.links[Queue.H2D]
        self._jitter = random.Random(draw.random())

    def duration_s(self, cost: CostBreakdown) -> float:
        """How long something takes this time."""
        jitter = self._change.jitter
        return cost.total_s * (1 + self._jitter.uniform(-jitter, jitter) if jitter else 1)

    def _factor(self, draw: random.Random) -> float:
        return 1 + draw.uniform(-self._change.terms, self._change.terms)

    def _device(self, rates: DeviceRates, draw: random.Random) -> DeviceRates:
        return DeviceRates(
            rates.bytes_per_s * self._factor(draw),
            rates.flops_per_s * self._factor(draw),
            rates.kernel_overhead_s * self._factor(draw),
            quantize_share=rates.quantize_share,
            dequantize_share=rates.dequantize_share,
        )

    def _link(self, rates: LinkRates, draw: random.Random) -> LinkRates:
        return LinkRates(
            rates.bytes_per_s * self._factor(draw), rates.latency_s * self._factor(draw)
        )
