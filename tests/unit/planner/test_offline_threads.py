"""Threads of the CPU in plans of batch jobs follow what a profile's sweep over them found."""

from dataclasses import replace

import pytest
from tests.support.profiles import host_measurements
from tests.unit.planner.questions import SMALL, ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.answer import offline_answer
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.policies import find_offline_policy
from tandem.planner.offline.replan import plan_rest
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.threads import at_threads, best_point, by_threads, planned_threads
from tandem.planner.question import Question
from tandem.profiling.measurements import HostMeasurements, ThreadPoint, ThreadRates
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.units import GIB
from tandem.spec.workload import RequestShape

FALLS = {1: 10e9, 2: 19e9, 4: 30e9, 8: 24e9, 12: 15e9}
ON_CPU = BlockCandidate(1, 0, 0, 0, 16)


def measured(rates: dict[int, float]) -> HostMeasurements:
    """As fast as the profile's attention is with all threads, by the sweep as given."""
    sweep = tuple(
        ThreadPoint(n, ThreadRates(2 * rate, rate, rate), None) for n, rate in rates.items()
    )
    return replace(host_measurements(), threads=max(rates, default=2), sweep=sweep)


def asked(rates: dict[int, float]) -> Question:
    return ask(SMALL, "a10g", "server-genoa", requests=64, measured=measured(rates))


def at_best_threads(question: Question) -> Question:
    return next(by_threads(question))


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        (FALLS, 4),
        ({1: 10e9, 2: 19e9, 4: 30e9}, 4),
        ({1: 10e9, 2: 19e9, 4: 30e9, 8: 30.5e9}, 4),  # as fast as can be told
        ({1: 10e9, 2: 19e9, 4: 30e9, 8: 35e9}, 8),
        ({1: 10e9}, 1),
    ],
)
def test_the_fewest_threads_that_attend_as_fast_as_any(rates: dict[int, float], best: int) -> None:
    found = best_point(measured(rates))
    assert found is not None
    assert found.threads == best
    planned = planned_threads(at_best_threads(asked(rates)), ON_CPU, adapts=False)
    assert planned is not None
    assert planned.count == best


def test_attention_is_priced_by_the_threads_that_are_planned() -> None:
    """30 GB/s with 4 of them, where all 12 reach 15."""
    all_, best = (
        OfflineSearch(question).times.time(ON_CPU).decode.cpu_s
        for question in (asked(FALLS), at_best_threads(asked(FALLS)))
    )
    assert best < all_
    by_hand = at_best_threads(asked(FALLS)).measured
    assert by_hand is not None
    took, takes = (
        each.attention[0].surface.at(16, 512).seconds for each in (measured(FALLS), by_hand)
    )
    assert takes == pytest.approx(took / 2)
    again = at_best_threads(at_best_threads(asked(FALLS)))
    assert again == at_best_threads(asked(FALLS))


def test_nothing_is_planned_where_nothing_is_known_or_the_cpu_does_not_attend() -> None:
    question = at_best_threads(asked(FALLS))
    streamed = BlockCandidate(1, 0, 0, 16, 0)
    assert planned_threads(question, streamed, adapts=False) is None
    assert planned_threads(question, streamed, adapts=True) is not None
    assert planned_threads(question, BlockCandidate(1, 0, 16, 0, 0), adapts=True) is None
    unswept, unmeasured = asked({}), replace(question, measured=None)
    for unknown in (unswept, unmeasured):
        assert at_best_threads(unknown) == unknown
        assert planned_threads(unknown, ON_CPU, adapts=False) is None


def swept(*points: tuple[int, float, float]) -> Question:
    """Threads, and their rates of keys and values, and of weights."""
    rest = tuple(
        ThreadPoint(n, ThreadRates(2 * keys, keys, weights), None) for n, keys, weights in points
    )
    question = asked(FALLS)
    assert question.measured is not None
    most = max(point.threads for point in rest)
    return replace(question, measured=replace(question.measured, threads=most, sweep=rest))


def counts(question: Question) -> list[int]:
    return [each.measured.threads for each in by_threads(question) if each.measured is not None]


def test_numbers_of_threads_are_tried_that_are_faster_at_anything() -> None:
    assert counts(swept((1, 10e9, 10e9), (4, 30e9, 30e9), (8, 24e9, 24e9))) == [4, 1]
    assert counts(swept((4, 30e9, 20e9), (8, 24e9, 24e9), (12, 15e9, 24.5e9))) == [4, 8]
    assert counts(swept((2, 30e9, 20e9), (4, 25e9, 20.3e9))) == [2]


def beside_link(question: Question, *rates: tuple[float, float]) -> Question:
    """The same, of keys and values, and of weights, while the link is busy."""
    assert question.measured is not None
    sweep = tuple(
        replace(point, beside_link=ThreadRates(2 * keys, keys, weights))
        for point, (keys, weights) in zip(question.measured.sweep, rates, strict=True)
    )
    return replace(question, measured=replace(question.measured, sweep=sweep))


def test_threads_are_compared_beside_a_busy_link_and_priced_alone() -> None:
    """Twelve threads are faster than four only with what the link's copies use."""
    alone = swept((4, 126e9, 126e9), (12, 150e9, 150e9))
    assert counts(alone) == [12, 4]
    busy = beside_link(alone, (125e9, 125e9), (128e9, 128e9))
    assert counts(busy) == [4]
    best = at_best_threads(busy).measured
    assert best is not None
    point = best_point(best)
    assert point is not None
    unaware = at_threads(alone, replace(point, beside_link=None)).measured
    assert unaware is not None
    assert best.attention == unaware.attention, "virtual time takes the link's part itself"
    assert best.linear == unaware.linear
    said = str(planned_threads(at_best_threads(busy), ON_CPU, adapts=False))
    assert said == (
        "4 of 12 attend, to 125 GB/s of keys and values beside a busy link, 12 to 128; "
        "8 left for launches"
    )


def test_products_take_longer_by_fewer_threads() -> None:
    """Of one row by what is read; what more rows add is arithmetic, which threads share."""
    question = swept((4, 30e9, 15e9), (12, 15e9, 20e9))
    fewer = at_threads(question, best_point(question.measured)).measured  # type: ignore[arg-type]
    assert question.measured is not None
    assert fewer is not None
    for before, after in zip(question.measured.linear, fewer.linear, strict=True):
        for row, slower in zip(before.surface.seconds, after.surface.seconds, strict=True):
            assert slower[0] == pytest.approx(row[0] * 20 / 15)
            assert slower[-1] - slower[0] == pytest.approx(3 * (row[-1] - row[0]))


def test_layers_on_the_cpu_have_the_threads_that_multiply_fastest() -> None:
    """Four attend faster than twelve, which multiply nearly three times as fast."""
    question = swept((4, 30e9, 8e9), (12, 28e9, 22e9))
    model = short(plannable_spec("llama-3.1-70b"), 8)
    hardware = pair_hardware("a100-80", "server-genoa")
    question = replace(
        ask(model, requests=2, prompt="32", generate="200", measured=question.measured),
        hardware=hardware,
        device_bytes=8 * GIB,
        host_bytes=40 * GIB,
    )
    found = offline_answer(question)
    assert found.chosen.candidate.lent or found.chosen.candidate.columns
    assert found.plan.threads == 12
    said = "12 of 12 compute, by 22 GB/s of weights; none left for launches: they take turns"
    assert str(found.threads) == said
    by_four = OfflineSearch(next(by_threads(question))).best(find_offline_policy("auto"))
    assert by_four is not None
    assert found.chosen.tokens_per_s > 1.1 * by_four.tokens_per_s


def test_the_threads_that_are_chosen_are_searched_with_all_effort() -> None:
    """What a search with less effort found by twelve threads was 1% slower."""
    question = swept((4, 30e9, 8e9), (12, 28e9, 22e9))
    model = short(plannable_spec("llama-3.1-70b"), 8)
    question = replace(
        ask(model, requests=8, prompt="128", generate="64", measured=question.measured),
        hardware=pair_hardware("a100-80", "server-genoa"),
        device_bytes=12 * GIB,
        host_bytes=40 * GIB,
    )
    found = offline_answer(question)
    assert found.plan.threads == 12
    alone = OfflineSearch(found.question).best(find_offline_policy("auto"))
    assert alone is not None
    assert found.chosen.tokens_per_s >= alone.tokens_per_s


def test_what_is_left_for_others_is_said() -> None:
    question = at_best_threads(asked(FALLS))
    said = str(planned_threads(question, ON_CPU, adapts=False))
    assert said == "4 of 12 attend, to 30 GB/s of keys and values, 12 to 15; 8 left for launches"
    from_disk = str(planned_threads(question, replace(ON_CPU, on_disk=2), adapts=False))
    assert from_disk.endswith("8 left for launches and the 4 that read from disk")
    all_ = str(planned_threads(asked({1: 10e9, 2: 20e9}), ON_CPU, adapts=False))
    assert all_.endswith(
        "2 of 2 attend, to 20 GB/s of keys and values; none left for launches: they take turns"
    )


def test_the_plan_says_how_many_and_a_plan_for_the_rest_keeps_them() -> None:
    question = replace(asked(FALLS), device_bytes=6 * GIB)
    found = offline_answer(question)
    plan = found.plan
    assert plan.host_rows
    assert plan.terms is not None
    assert plan.threads == 4
    assert plan.notes[-1] == f"CPU threads: {found.threads}"
    assert offline_answer(replace(question, measured=None)).plan.threads is None
    slow = replace(question.hardware.link, h2d_bytes_per_s=2e9, d2h_bytes_per_s=2e9)
    rest = plan_rest(
        replace(question.hardware, link=slow),
        question.model,
        question.precision,
        plan,
        plan.streamed_rows,
        (RequestShape(512, 128),) * 200,
    )
    assert rest is not None
    assert rest.plan.threads == 4
