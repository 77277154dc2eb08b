"""What a candidate achieves, as numbers: rates, and how busy each resource is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

from tandem.planner.fluid.virtual_time import SweepTime

Resource = Literal[
    "accelerator",
    "host processor",
    "link to the accelerator",
    "link to the host",
    "host memory",
    "disk",
]


@dataclass(frozen=True, slots=True)
class Rates:
    """Steady state of a candidate under its workload.

    Attributes:
        tokens_per_s: output tokens of all requests.
        tpot_s: between tokens of a request that every sweep serves, prefills of others included.
        slow_tpot_s: of a request in a cohort; None if there are none.
        ttft_s: of a mean prompt once its turn has come, beside the others.
        prefill_share: of the sweeps, those with a part of a prompt.
        edges_s: what a job takes beside its tokens at that rate: until all rows run, and from the
            last prompt on, when rows run out.
        job_tokens_per_s: edges included, where all requests are there at once: what plans are
            ranked by.
    """

    tokens_per_s: float
    tpot_s: float
    slow_tpot_s: float | None
    ttft_s: float
    prefill_share: float
    edges_s: float
    job_tokens_per_s: float

    @property
    def worst_tpot_s(self) -> float:
        """Of the slower lane."""
        return self.tpot_s if self.slow_tpot_s is None else self.slow_tpot_s


Busy = tuple[tuple[Resource, float], ...]
"""Shares of the time, or of what a resource carries in it."""


@dataclass(frozen=True)
class Prediction:
    """Rates in virtual time, and how busy the resources are.

    Attributes:
        decode: one sweep in which all rows decode.
        bound_tokens_per_s: what no schedule of this candidate exceeds.
        find_busy: what gives `busy`, of hundreds of predictions for the few that are shown.
    """

    rates: Rates
    decode: SweepTime
    bound_tokens_per_s: float
    find_busy: Callable[[], Busy] = field(compare=False, repr=False)

    @cached_property
    def busy(self) -> Busy:
        """Shares of the steady state's time, prompts included (with one request at a time, of a
        decode sweep's); of host memory, of its bytes per second. A disk that nothing is read from
        is left out.
        """
        return self.find_busy()

    @property
    def bottleneck(self) -> tuple[Resource, float]:
        """The busiest resource and its share."""
        return max(self.busy, key=lambda entry: entry[1])

    def __reduce__(self) -> tuple[Callable[..., "Prediction"], tuple[object, ...]]:
        """Told to another process with all that it is."""
        told = self.rates, self.decode, self.bound_tokens_per_s
        return Prediction, (*told, partial(_known, self.busy))


def _known(busy: Busy) -> Busy:
    return busy
