"""Section 6 of the design, for batch jobs: the shortlist holds the best of random small ones."""

import pytest
from tests.support.block_shortlist import random_job, shortlisted

_QUESTIONS = 40
_LEAST_SHARE = 0.95


@pytest.mark.slow
def test_the_shortlist_holds_the_best_of_nearly_all_small_jobs() -> None:
    cases = [shortlisted(random_job(seed)) for seed in range(_QUESTIONS)]
    fitting = [case for case in cases if case.best]
    assert len(fitting) > _QUESTIONS / 2
    assert sum(case.plans for case in fitting) > 100 * len(fitting), "no grid worth the name"
    held = [case for case in fitting if case.holds]
    assert len(held) >= _LEAST_SHARE * len(fitting), [c.winner for c in fitting if not c.holds]
