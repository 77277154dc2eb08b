"""Section 6 of the design, for batch jobs: the shortlist holds the best of random small ones."""

import pytest
from tests.support.block_shortlist import BlockCase, random_job, shortlisted

_QUESTIONS, _AT_ONCE = 40, 5
_LEAST_SHARE = 0.95
_GROUPS = [range(begin, begin + _AT_ONCE) for begin in range(0, _QUESTIONS, _AT_ONCE)]


class Cases:
    """Of seeds, each found when a test first asks for it."""

    def __init__(self) -> None:
        self._found: dict[int, BlockCase] = {}

    def get(self, seed: int) -> BlockCase:
        """Its shortlist beside every plan."""
        if seed not in self._found:
            self._found[seed] = shortlisted(random_job(seed))
        return self._found[seed]


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", _GROUPS, ids=str)
def test_the_shortlist_has_a_plan_where_one_fits(seeds: range, cases: Cases) -> None:
    """In parts: all questions together take a minute."""
    found = [cases.get(seed) for seed in seeds]
    assert [bool(case.listed) for case in found] == [case.plans > 0 for case in found]


@pytest.mark.slow
def test_the_shortlist_holds_the_best_of_nearly_all_small_jobs(cases: Cases) -> None:
    fitting = [case for seed in range(_QUESTIONS) if (case := cases.get(seed)).best]
    assert len(fitting) > _QUESTIONS / 2
    assert sum(case.plans for case in fitting) > 100 * len(fitting), "no grid worth the name"
    held = [case for case in fitting if case.holds]
    assert len(held) >= _LEAST_SHARE * len(fitting), [c.winner for c in fitting if not c.holds]
