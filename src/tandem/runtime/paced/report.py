"""Whether a paced run can be believed, and what its queues did."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tandem.spec.units import format_size

MAX_BUSY_SHARE = 0.8
MAX_LATENESS_SHARE = 0.05
_PERCENTILE = 95


@dataclass(frozen=True, slots=True)
class PacedReport:
    """One measured window of a paced run.

    Attributes:
        valid: False if there are `reasons` for which the figures mean nothing.
        poll_lateness_p95_s: between an event's time and its delivery.
        waking_p95_s: of that, since the poll that asked for it. The rest is the scheduler's, which
            was busy with the next step. It is told, and not judged.
        submit_lateness_p95_s: how long the accelerator had run dry when a sweep was submitted.
        start_lateness_p95_s: between the moment when a host operation could start and its start.
        stage_s: mean length of a PRE or POST stage, the yardstick of lateness.
        busy_share: processor time of the scheduler's thread per wall time, without waiting.
        accel_busy, h2d_busy, d2h_busy, weights_busy, cpu_busy: share of the window in which the
            queue worked.
        brought_bytes: over the link to the accelerator, by copies that ended in the window.
        contention: how DMA and CPU attention share the host's memory.
        host_sets, host_distinct_bytes: sets of pages that attention walks through (`Aliasing`).
        host_read_bytes: distinct bytes that attention really read between two visits to the same.
        cache_bytes: the last-level cache.
    """

    valid: bool
    reasons: tuple[str, ...]
    wall_s: float
    poll_lateness_p95_s: float
    waking_p95_s: float
    submit_lateness_p95_s: float
    start_lateness_p95_s: float
    stage_s: float
    busy_share: float
    accel_busy: float
    h2d_busy: float
    d2h_busy: float
    weights_busy: float
    cpu_busy: float
    brought_bytes: float
    contention: Literal["modelled", "none"]
    host_sets: int
    host_distinct_bytes: int
    host_read_bytes: int
    cache_bytes: int

    @property
    def lateness_p95_s(self) -> float:
        """The worst of the three kinds that are judged."""
        return max(self.poll_lateness_p95_s, self.submit_lateness_p95_s, self.start_lateness_p95_s)


@dataclass(slots=True)
class Lateness:
    """Samples of one window, seconds; those of `waking` are not judged."""

    poll: list[float] = field(default_factory=list[float])
    waking: list[float] = field(default_factory=list[float])
    submit: list[float] = field(default_factory=list[float])
    start: list[float] = field(default_factory=list[float])


def percentile_95(samples: Sequence[float]) -> float:
    """95th percentile; 0 of no samples."""
    return float(np.percentile(samples, _PERCENTILE)) if samples else 0.0


def judge(
    lateness: Lateness,
    stage_s: float,
    busy_share: float,
    read_bytes: int,
    cache_bytes: int,
    wanted_bytes: int,
) -> tuple[str, ...]:
    """Why a run is invalid; empty if it is valid.

    Args:
        read_bytes: distinct bytes that host attention walks through; 0 if there was none.
        wanted_bytes: how many there must be.
    """
    reasons: list[str] = []
    if busy_share > MAX_BUSY_SHARE:
        reasons.append(
            f"the scheduler's core was {busy_share:.0%} busy (at most {MAX_BUSY_SHARE:.0%})"
        )
    for name, samples in (
        ("polls", lateness.poll),
        ("submissions", lateness.submit),
        ("host operations", lateness.start),
    ):
        late = percentile_95(samples)
        if late > MAX_LATENESS_SHARE * stage_s:
            reasons.append(
                f"{name} were {late * 1e6:.0f} us late at the 95th percentile, more than "
                f"{MAX_LATENESS_SHARE:.0%} of a stage of {stage_s * 1e6:.0f} us"
            )
    if 0 < read_bytes < wanted_bytes:
        reasons.append(
            f"host attention read {format_size(read_bytes)} of distinct KV, less than "
            f"{format_size(wanted_bytes)}, {wanted_bytes // cache_bytes} times the last-level cache"
        )
    return tuple(reasons)
