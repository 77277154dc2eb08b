"""Hand-overs learnt from whole sweeps, and what was found dear tried again."""

from dataclasses import replace

import pytest
from tests.support.step_prices import round_prices

from tandem.cost.hand_overs import NO_HAND_OVERS, HandOver, HandOvers
from tandem.cost.learnt_hand_overs import HandOverLearner, MeasuredStep
from tandem.cost.step_prices import CohortWork, StepWork, TierWork

LAYERS = 32
SAID_S, PLAIN_S = 0.012, 0.005
PLAIN = MeasuredStep(HandOver.NONE, PLAIN_S, None, 0.0)


def step(late_s: float, kind: HandOver = HandOver.DECODES, said_s: float = SAID_S) -> MeasuredStep:
    return MeasuredStep(kind, said_s + late_s, said_s, late_s)


def learner_of(*steps: MeasuredStep) -> HandOverLearner:
    learner = HandOverLearner(LAYERS)
    for each in steps:
        learner.observe(each)
    return learner


def test_three_steps_tell_after_the_first_of_a_kind() -> None:
    late = [step(0.096)] * 4
    assert learner_of(*late[:3]).known == NO_HAND_OVERS
    assert learner_of(*late).known.decodes_s == pytest.approx(0.003)
    assert learner_of(*late).known.launched_s == learner_of(*late).known.cohorts_s == 0.0


def test_one_long_step_among_others_tells_nothing() -> None:
    usual = [step(0.0)] * 3
    assert learner_of(*usual, step(9.0), *usual, step(9.0), *usual).known == NO_HAND_OVERS


def test_wrong_predictions_are_not_hand_overs_where_queues_are_at_work() -> None:
    wrong = MeasuredStep(HandOver.DECODES, 10 * SAID_S, SAID_S, 0.0)
    assert learner_of(*[wrong] * 8).known == NO_HAND_OVERS


def test_what_steps_of_the_accelerator_alone_lack_too_does_not_count() -> None:
    plain = MeasuredStep(HandOver.NONE, PLAIN_S, None, 0.003)
    assert learner_of(*[plain] * 4, *[step(0.003)] * 6).known == NO_HAND_OVERS
    found = learner_of(*[plain] * 4, *[step(0.009)] * 6).known
    assert found.decodes_s == pytest.approx(0.006 / LAYERS)


def test_cohorts_count_in_the_mean_of_sweeps_that_they_join_and_do_not() -> None:
    pair = [step(0.02, HandOver.COHORTS), step(0.0, HandOver.COHORTS)]
    known = learner_of(*pair * 20).known
    assert known.cohorts_s == pytest.approx(0.01)
    assert known.decodes_s == known.launched_s == 0.0


def test_trials_take_less_than_a_hundredth_and_are_fewer_while_they_fail() -> None:
    learner, lost_s, begun = HandOverLearner(LAYERS), 0.0, list[int]()
    for number in range(100_000):
        rides = not learner.now.decodes_s
        if rides and number > 10:
            lost_s += SAID_S + 0.096
            if not begun or number > begun[-1] + 10:
                begun.append(number)
        learner.observe(step(0.096) if rides else PLAIN)
    assert len(begun) >= 2
    assert lost_s < 0.01 * 100_000 * PLAIN_S
    assert begun[1] - begun[0] > 1.5 * begun[0]
    assert learner.known.decodes_s == pytest.approx(0.003)


def test_the_next_trial_finds_that_they_are_cheap() -> None:
    learner = learner_of(*[step(0.096)] * 4)
    rode = 0
    for _ in range(20_000):
        rides = not learner.now.decodes_s
        rode += rides
        learner.observe(step(0.0) if rides else PLAIN)
        if not learner.known.decodes_s:
            break
    assert learner.known == learner.now == NO_HAND_OVERS
    assert rode == 4  # the first one is beside steps of another kind


def test_a_trial_that_comes_to_nothing_ends() -> None:
    learner = learner_of(*[step(0.096)] * 4)
    tried = 0
    for _ in range(20_000):
        learner.observe(PLAIN)
        tried += not learner.now.decodes_s
    assert 0 < tried < 200


def test_forecasts_count_them_by_kind() -> None:
    prices = round_prices(4, layer_s=1.0)
    dear = replace(prices, hand_overs=HandOvers(decodes_s=0.5, launched_s=0.75, cohorts_s=3.0))
    host = TierWork(2, 10, 10)
    alone = StepWork(4, 0, 4, TierWork(4, 10, 10), TierWork())
    riding = alone._replace(host=host)
    crossing = alone._replace(cohorts=(CohortWork(2, 10, visits=1.0),))
    beside = riding._replace(prompts=8)
    for work, more_s, kind in (
        (alone, 0.0, HandOver.NONE),
        (riding, 4 * 0.5, HandOver.DECODES),
        (beside, 4 * 0.75, HandOver.LAUNCHED),
        (crossing, 3.0, HandOver.COHORTS),
    ):
        found = dear.forecast(work)
        assert found.kind is kind
        assert found.hand_over_s == more_s
        assert found.time_s == pytest.approx(prices.forecast(work).time_s + more_s)
