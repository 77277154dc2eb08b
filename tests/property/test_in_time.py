"""Which jobs are in time, against all ways to choose them."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tandem.scheduler.in_time import Job, in_time

_TIMES = st.integers(0, 8).map(float)
_JOBS = st.lists(st.builds(Job, _TIMES, st.integers(-3, 20).map(float)), max_size=8)


def all_in_time(jobs: list[Job], begin_s: float) -> bool:
    """One after the other, by when they are due; no order is better for that."""
    end_s = begin_s
    for job in jobs:
        end_s += job.time_s
        if end_s > job.due_s:
            return False
    return True


@given(jobs=_JOBS.map(lambda jobs: sorted(jobs, key=lambda job: job.due_s)), begin_s=_TIMES)
def test_no_choice_has_more_jobs_in_time(jobs: list[Job], begin_s: float) -> None:
    kept = in_time(jobs, begin_s)
    chosen = [job for job, keeps in zip(jobs, kept, strict=True) if keeps]
    assert all_in_time(chosen, begin_s)
    more = combinations(jobs, len(chosen) + 1)
    assert not any(all_in_time(list(each), begin_s) for each in more)
