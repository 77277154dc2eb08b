"""What the loads of a sweep take at least: of the link, and of the memory that the CPU reads.

**Where some may be spared.** Layers that may be lent to the CPU are not loaded in sweeps that read
no prompt, and where all are lent but as many as there are slots, these stay there, and nothing is
loaded. A sweep's loads are then none of at most `s = STREAM_SLOTS` layers, and else those of all
`x` that are not lent, `x` up to the `n` layers that may be elsewhere. The line through `(s, 0)` and
`(n, n)` is below both: `n / (n - s) (x - s)`.

**Where the CPU waits.** Without cohorts a sweep's layers go one after the other: while the
accelerator computes, for `S` seconds of a sweep's `T`, nothing is attended on the CPU, which so has
`T - S` for what it reads, `B` bytes at the memory's rate `m`. Loads come at a rate of `r` at most.
For `r S` of their bytes `W` the CPU waits anyway; the rest is copied while it reads. Beside copies
at a rate of `c` it reads `m - c` at most, or, if they keep their times (as the emulator's did until
ADR 0113), `m m / (m + c)`; for `c` up to `r` both are at most `m - c m / (m + r)`. So `B <= m (T -
S) - (W - r S) m / (m + r)`, or `T >= m / (m + r) S + B / m + W / (m + r)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.layer_prices import LayerPrice
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.way import Way

_LENT: frozenset[LayerHome] = frozenset(("host", "host-mlp", "experts-host"))


@dataclass(frozen=True, slots=True)
class Loads:
    """Of one kind of sweep.

    Attributes:
        times: by which the loads of layers that are not lent count.
        spared_s: of the link, subtracted from their sum. spared_bytes: likewise, in the host's
            memory.
    """

    times: float = 1.0
    spared_s: float = 0.0
    spared_bytes: float = 0.0


def loads_of(prices: Prices, layer: Mapping[LayerHome, LayerPrice], prompt_tokens: int) -> Loads:
    """Of sweeps that read so many tokens of prompts.

    Args:
        layer: prices by home, as the sweep uses it.
    """
    lent, movable = _LENT.intersection(layer), prices.question.movable_layers
    if not lent or prompt_tokens or movable <= STREAM_SLOTS:
        return Loads()
    loads = [layer[streamed(home)] for home in lent]
    times = movable / (movable - STREAM_SLOTS) if prices.executed else 1.0
    return Loads(
        times,
        times * STREAM_SLOTS * max(load.link_s for load in loads),
        times * STREAM_SLOTS * max(load.loaded_bytes for load in loads),
    )


def streamed(home: LayerHome) -> LayerHome:
    """What a layer that may be lent is where it is not."""
    if home == "host":
        return "streamed"
    if home == "host-mlp":
        return "streamed-mlp"
    return "experts-streamed" if home == "experts-host" else home


def waits_for_cpu(prices: Prices, way: Way) -> bool:
    """Whether what a sweep does on the CPU is known to have the accelerator wait, and the other way
    round, so that the memory moves loads alone while the latter computes.
    """
    return prices.executed and not (way.has_cohort or way.shares_mixtures)


def while_read_s(
    pool_bytes_per_s: float,
    layer: Mapping[LayerHome, LayerPrice],
    loads: Loads,
    around_s: float,
) -> tuple[tuple[float, ...], float]:
    """Of a sweep that waits for the CPU, without what attention reads: seconds for each layer, by
    home, and beside them.

    Args:
        pool_bytes_per_s: of the host's memory. around_s: before and after the layers.
    """
    pool, rate = pool_bytes_per_s, max(map(_load_rate, layer.values()), default=0.0)
    both, share = pool + rate, pool / (pool + rate)
    each = (
        share * (price.chain_s - price.cpu_s)
        + price.cpu_bytes / pool
        + loads.times * price.loaded_bytes / both
        for price in layer.values()
    )
    return tuple(each), share * around_s - loads.spared_bytes / both


def _load_rate(price: LayerPrice) -> float:
    """Bytes per second that a layer's load moves in the host's memory."""
    return price.loaded_bytes / price.link_s if price.link_s else 0.0
