"""What a strategy wants to happen in a step."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tandem.plan.binding import LongArray

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepForecast

_NO_ROWS: LongArray = np.zeros(0, dtype=np.int64)


def no_rows() -> LongArray:
    """None."""
    return _NO_ROWS


class Chunk(NamedTuple):
    """Compute the next `num_tokens` of a running row (prefill, or a resumed row's catch-up)."""

    row: int
    num_tokens: int


class Admission(NamedTuple):
    """Give the waiting request a row and compute its first `num_tokens` after cached ones.

    Attributes:
        device_limit: leading blocks to keep on the device.
        leaves: all of them go to the host once the prompt has been read.
    """

    request_id: str
    num_tokens: int
    device_limit: int
    leaves: bool = False


class StepProposal(NamedTuple):
    """Decisions of one step; the scheduler allocates for them and compiles them to a program.

    Attributes:
        decode: rows of the main lane that compute one token.
        fetches: waiting requests that get a row on the device while what the host has cached of
            their beginning is brought there; they compute nothing before it has come.
        spill: rows whose further blocks go to the other tier, since their own is full.
        preempt: rows that give up their device memory (after draining).
        leave: rows whose prompts have been read on the device: their blocks go to the host.
        set_aside: rows that lie on the host, of which nothing is in flight: they wait there for
            room on the device.
        swap_in: swapped rows to bring back to the device; `resume` those that go on where they are.
        cohort_starts: rows of each new cohort; `starts_ahead` whether they join before their last
            joins are decided. cohort_joins: the cohorts that join this sweep.
        interposed_passes: most passes of its own that each of them may have in this sweep.
        way: what a strategy that chooses among several calls this one. sweeps: after this one, for
            which it may keep to it without weighing. forecast: what it was weighed by.
    """

    decode: LongArray = _NO_ROWS
    chunks: tuple[Chunk, ...] = ()
    admissions: tuple[Admission, ...] = ()
    fetches: tuple[str, ...] = ()
    spill: tuple[int, ...] = ()
    preempt: tuple[int, ...] = ()
    leave: tuple[int, ...] = ()
    set_aside: tuple[int, ...] = ()
    swap_in: tuple[int, ...] = ()
    resume: tuple[int, ...] = ()
    cohort_starts: tuple[LongArray, ...] = ()
    starts_ahead: bool = False
    cohort_joins: tuple[int, ...] = ()
    interposed_passes: int = 0
    way: str = ""
    sweeps: int = 0
    forecast: "StepForecast | None" = None

    @property
    def has_main(self) -> bool:
        """True if the main lane has rows."""
        return bool(len(self.decode) or self.chunks or self.admissions)

    @property
    def computes(self) -> bool:
        """True if a sweep is to run."""
        return bool(self.has_main or self.cohort_starts or self.cohort_joins)

    @property
    def only_goes_on(self) -> bool:
        """True if rows only decode, in the main lane or in cohorts that are under way."""
        comes = self.chunks or self.admissions or self.cohort_starts
        return not (self._changes or comes)

    @property
    def empty(self) -> bool:
        """True if nothing at all is proposed."""
        return not (self.computes or self._changes)

    @property
    def _changes(self) -> bool:
        """True if rows change their places, or how they go on."""
        ends = self.spill or self.preempt or self.leave or self.set_aside
        return bool(ends or self.swap_in or self.resume or self.fetches)
