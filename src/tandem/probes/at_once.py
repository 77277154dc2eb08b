"""Attention on the CPU, the link both ways and the disks: each alone, and all at once.

Import this module only if `native.available()`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tandem.probes.beside import beside
from tandem.probes.contention import CpuWork, Load, load_rate
from tandem.probes.meter import Meter
from tandem.profiling.measurements import AtOnce, SharedThing


@dataclass(frozen=True, slots=True)
class Sharer:
    """What goes on beside attention; `load` returns the bytes of one direction."""

    thing: SharedThing
    load: Load


def measure_at_once(
    attention: CpuWork, others: Sequence[Sharer], rounds: int
) -> tuple[AtOnce, ...]:
    """Medians of rounds in which each has its turn alone, and then all run.

    Args:
        others: at least one; else there is nothing to share with.
    """
    assert others, "attention alone shares with nobody"
    attention.sample(0)
    for other in others:
        other.load()
    things: list[SharedThing] = ["attention", *(each.thing for each in others)]
    alone: dict[SharedThing, list[float]] = {thing: [] for thing in things}
    together: dict[SharedThing, list[float]] = {thing: [] for thing in things}
    for _ in range(rounds):
        alone["attention"].append(attention.rate())
        for other in others:
            alone[other.thing].append(load_rate(other.load))
        for thing, rate in _all(attention, others).items():
            together[thing].append(rate)
    return tuple(AtOnce(each, median(alone[each]), median(together[each])) for each in things)


def _all(attention: CpuWork, others: Sequence[Sharer]) -> dict[SharedThing, float]:
    """Rates of one round."""
    meters = [Meter(each.load) for each in others]

    def attend() -> float:
        return attention.rate(meters)

    probe: Callable[[], float] = attend
    for meter in meters:
        probe = beside(probe, meter)
    rates: dict[SharedThing, float] = {"attention": probe()}
    for each, meter in zip(others, meters, strict=True):
        rates[each.thing] = meter.rate
    return rates
