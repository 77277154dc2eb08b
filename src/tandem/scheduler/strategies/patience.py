"""How long somebody may be left where they are: what predicted rates alone would not bound."""

import numpy as np

from tandem.plan.binding import LongArray
from tandem.scheduler.view import SchedulerView

_PROGRAMS_PER_SWEEP = 2  # a sweep's and its sampling's
_PARKED_SWEEPS = 8
_WAITING_SWEEPS_PER_LAYER = 4


def hosted_overdue(view: SchedulerView, hosted: LongArray) -> bool:
    """Whether one of these rows, in no cohort, has waited for longer than two cohorts that take
    turns need for a token each.
    """
    return _idle_sweeps(view, hosted) > waiting_sweeps(view)


def overdue_rows(view: SchedulerView, rows: LongArray) -> LongArray:
    """Those of some rows on the host, in no cohort, that have waited for so long."""
    begun = np.array(view.next_step - _PROGRAMS_PER_SWEEP * waiting_sweeps(view))
    overdue = view.rows.last_step[rows] < begun
    return rows[overdue] if np.count_nonzero(overdue) else rows[:0]


def waiting_sweeps(view: SchedulerView) -> int:
    """Most that a row on the host should wait for."""
    return _WAITING_SWEEPS_PER_LAYER * view.config.num_layers


def cohort_overdue(view: SchedulerView) -> bool:
    """Whether a cohort has been parked for long."""
    cohorts = view.cohorts.values()
    return any(_idle_sweeps(view, cohort.rows.rows) > _PARKED_SWEEPS for cohort in cohorts)


def _idle_sweeps(view: SchedulerView, rows: LongArray) -> float:
    """Since the last program that named the one of them that has waited longest."""
    if not len(rows):
        return 0.0
    oldest = int(np.minimum.reduce(view.rows.last_step[rows]))
    return (view.next_step - oldest) / _PROGRAMS_PER_SWEEP
