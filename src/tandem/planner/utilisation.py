"""How busy each resource is in a steady state."""

from collections.abc import Sequence
from dataclasses import fields

from tandem.planner.fluid.virtual_time import SweepTime
from tandem.planner.question import Question
from tandem.planner.rates import Resource


def mean_sweep(parts: Sequence[tuple[float, SweepTime]]) -> SweepTime:
    """Of sweeps by their weights, which sum to 1."""
    return SweepTime(
        *(
            sum(weight * getattr(sweep, field.name) for weight, sweep in parts)
            for field in fields(SweepTime)
        )
    )


def busy_shares(question: Question, sweep: SweepTime) -> tuple[tuple[Resource, float], ...]:
    """Shares of the sweep's time; of host memory, of its bytes per second. A disk that nothing is
    read from is left out.
    """
    dram = question.hardware.host.pool_bytes_per_s
    shares: list[tuple[Resource, float]] = [
        ("accelerator", sweep.accelerator_s / sweep.period_s),
        ("host processor", sweep.cpu_s / sweep.period_s),
        ("link to the accelerator", sweep.h2d_s / sweep.period_s),
        ("link to the host", sweep.d2h_s / sweep.period_s),
        ("host memory", sweep.dram_bytes / sweep.period_s / dram),
    ]
    if question.host_only:  # it is the device
        shares = [("host processor", sweep.accelerator_s / sweep.period_s), shares[-1]]
    if sweep.disk_s:
        shares.append(("disk", sweep.disk_s / sweep.period_s))
    return tuple(shares)
