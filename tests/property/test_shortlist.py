"""Section 6 of the design: the shortlist holds the best of random small questions."""

from tests.support.shortlist import random_question, shortlisted

_QUESTIONS = 20
_LEAST_SHARE = 0.95


def test_the_shortlist_holds_the_best_of_nearly_all_small_questions() -> None:
    cases = [shortlisted(random_question(seed)) for seed in range(_QUESTIONS)]
    fitting = [case for case in cases if case.best]
    assert len(fitting) > _QUESTIONS / 2
    assert sum(case.placements for case in fitting) > 100 * len(fitting), "no grid worth the name"
    held = [case for case in fitting if case.holds]
    assert len(held) >= _LEAST_SHARE * len(fitting), [c.question for c in fitting if not c.holds]
