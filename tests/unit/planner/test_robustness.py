"""A plan under wrong numbers, against planning for the machine as it is."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import answer
from tandem.planner.in_step import InStep
from tandem.planner.option import Option
from tandem.planner.question import Question
from tandem.planner.robustness import Robustness
from tandem.planner.search.search import Search
from tandem.planner.wrong_rates import with_errors, wrong_machines
from tandem.spec.units import GIB

SMALL = short(plannable_spec("llama-3.1-8b"), 8)
HOSTED = ask(SMALL, device_bytes=5 * GIB, tpot_bound_s=0.06)
RESIDENT = ask(SMALL, requests=64)
STREAMED = ask(SMALL, device_bytes=int(2.85 * GIB), requests=64)  # all MLPs are streamed


def found(question: Question) -> Robustness:
    robust = answer(question, robust=True).robustness
    assert robust is not None
    return robust


def test_one_number_is_wrong_at_a_time_by_15_percent() -> None:
    card, link, host = (getattr(HOSTED.hardware, part) for part in ("accelerator", "link", "host"))
    cases = [(*errors.items(), question) for errors, question in wrong_machines(HOSTED)][:6]
    assert [wrong for wrong, _ in cases] == [
        (number, error) for error in (-0.15, 0.15) for number in ("GPU rates", "host rates", "link")
    ]
    for (number, error), question in cases:
        changed = question.hardware
        assert replace(question, hardware=HOSTED.hardware) == HOSTED
        same = {
            "GPU rates": changed.accelerator == card,
            "host rates": changed.host == host,
            "link": changed.link == link,
        }
        assert [name for name, is_same in same.items() if not is_same] == [number]
        assert changed.accelerator.memory_bytes == card.memory_bytes
        ratio = {
            "GPU rates": changed.accelerator.memory_bandwidth_bytes_per_s
            / card.memory_bandwidth_bytes_per_s,
            "host rates": changed.host.memory_bandwidth_bytes_per_s
            / host.memory_bandwidth_bytes_per_s,
            "link": changed.link.d2h_bytes_per_s / link.d2h_bytes_per_s,
        }[number]
        assert ratio == pytest.approx(1 + error)
        if number == "host rates":
            assert changed.host.flops_per_s == pytest.approx(host.flops_per_s * (1 + error))


def test_every_two_numbers_are_wrong_together_in_all_directions() -> None:
    pairs = [dict(errors) for errors, _ in wrong_machines(HOSTED)][6:]
    assert len(pairs) == len({tuple(pair.items()) for pair in pairs}) == 12
    assert {"GPU rates": -0.15, "link": 0.15} in pairs
    assert all(len(pair) == 2 for pair in pairs)
    for errors, question in wrong_machines(HOSTED):
        assert question == with_errors(HOSTED, errors)


def test_what_cores_and_copies_share_moves_with_the_host() -> None:
    host = replace(HOSTED.hardware.host, shared_memory_bandwidth_bytes_per_s=60e9)
    question = replace(HOSTED, hardware=replace(HOSTED.hardware, host=host))
    pools = [
        each.hardware.host.pool_bytes_per_s
        for errors, each in wrong_machines(question)
        if set(errors) == {"host rates"}
    ]
    assert pools == pytest.approx([0.85 * 60e9, 1.15 * 60e9])


def test_the_plan_stays_and_the_best_is_no_worse() -> None:
    given = answer(STREAMED, robust=True)
    assert given.robustness is not None
    for (errors, question), case in zip(
        wrong_machines(STREAMED), given.robustness.cases, strict=True
    ):
        assert case.errors == errors
        search = Search(question)
        candidate = given.chosen.candidate
        alone = InStep(search).of(Option(candidate, search.predictor.predict(candidate)))
        assert case.plan_tokens_per_s == pytest.approx(alone.tokens_per_s)
        assert case.best is not None
        most = max(case.plan_tokens_per_s, *case.rivals_tokens_per_s)
        assert case.best.tokens_per_s >= most * (1 - 1e-5)
        assert len(case.rivals_tokens_per_s) == len(given.alternatives)
        assert 0 <= case.regret < 1


def test_a_slow_link_matters_most_where_weights_are_streamed() -> None:
    robust = found(STREAMED)
    assert robust.decisive == "link"
    slower = {number: case.plan_tokens_per_s for case in robust.cases[:3] for number in case.errors}
    # Sweeps that read prompts wait for the accelerator, too, so not all of it shows.
    assert 0.84 < slower["link"] / robust.planned_tokens_per_s < 0.92
    assert robust.worst.regret == max(case.regret for case in robust.cases)


def test_a_plan_that_breaks_its_bound_is_said_to() -> None:
    bound_s = answer(RESIDENT).chosen.prediction.rates.worst_tpot_s
    robust = found(replace(RESIDENT, tpot_bound_s=bound_s * 1.01))
    late = [case for case in robust.cases if not case.plan_in_time]
    assert all(case.errors["GPU rates"] == -0.15 for case in late)
    assert len(late) == 5  # alone, and with either of the others off either way
    assert all(case in robust.fragile for case in late)


def test_fragile_is_what_lacks_over_three_percent_of_the_best() -> None:
    cases = found(STREAMED).cases
    best = cases[0].best
    assert best is not None
    rates = [best.tokens_per_s * share for share in (0.98, 0.96, 1.0)]
    off = [replace(cases[0], best=best, plan_tokens_per_s=rate) for rate in rates]
    assert Robustness(1.0, tuple(off)).fragile == (off[1],)
    assert Robustness(1.0, (off[0], off[2])).fragile == ()
