"""How long jobs take, and what requests see that come over time."""

from dataclasses import replace
from itertools import accumulate

import pytest
from tests.unit.planner.questions import ask, over_time

from tandem.planner.answer import Answer, answer
from tandem.planner.arrivals import Arrivals, at_arrivals
from tandem.planner.policies import POLICIES
from tandem.planner.question import Lengths
from tandem.planner.search.search import Search
from tandem.spec.workload import Workload

AUTO = POLICIES["auto"]


def test_a_job_takes_as_long_as_its_tokens_and_its_arrivals() -> None:
    search = Search(ask(requests=1000))
    best = search.best(AUTO)
    assert best is not None
    rates = best.prediction.rates
    # beside the steady rate: the first rows' prompts, and the last rows' tokens
    steady_s = 1000 * 128 / rates.tokens_per_s
    assert steady_s < search.predictor.job_s(rates) < steady_s + search.predictor.request_s(rates)
    spread = replace(search.question.lengths, duration_s=10_000.0)
    slow = Search(replace(search.question, lengths=spread)).predictor
    assert slow.job_s(rates) == pytest.approx(10_000 + slow.request_s(rates))


def arriving(requests_per_s: float) -> Answer:
    return answer(over_time(ask("llama-3.1-8b", "rtx4090", requests=1000), requests_per_s))


def test_requests_that_come_slowly_run_alone_and_see_it() -> None:
    found = arriving(0.1)
    assert found.arrivals is not None
    assert found.arrivals.keeps_up
    assert found.arrivals.rows == 1
    assert found.arrivals.tokens_per_s == pytest.approx(0.1 * 128, rel=0.1)
    alone = answer(ask("llama-3.1-8b", "rtx4090", objective="latency")).chosen.prediction.rates
    assert found.arrivals.rates.tpot_s == pytest.approx(alone.tpot_s, rel=0.15)
    assert found.arrivals.rates.tpot_s < 0.5 * found.chosen.prediction.rates.tpot_s
    last_s = found.question.lengths.duration_s
    assert found.job_s == pytest.approx(last_s + found.request_s, rel=1e-3)


def test_rows_grow_with_the_rate_until_requests_queue() -> None:
    found = [arriving(rate) for rate in (2.0, 8.0, 20.0)]
    loads = [each.arrivals for each in found]
    assert [load.keeps_up for load in loads if load] == [True, True, False]
    rows = [load.rows for load in loads if load]
    assert 1 < rows[0] < rows[1] < found[2].chosen.candidate.rows < rows[2]  # who waits, too
    # Little's law: as many run as come in the time that each takes
    assert rows[1] == pytest.approx(8 * found[1].request_s, rel=0.2)
    assert [load.ttft_is_least for load in loads if load] == [False, False, True]
    assert found[2].job_s > 1.5 * 999 / 20
    alike = answer(ask("llama-3.1-8b", "rtx4090", requests=1000))  # all at once
    assert found[2].job_s == pytest.approx(alike.job_s, rel=0.1)
    assert answer(ask()).arrivals is None


def beside_cohorts(requests_per_s: float, policy: str) -> Answer:
    """At a T4 that most requests do not fit: a few there, the others in cohorts on the host."""
    question = ask("llama-2-7b", "t4", prompt="325", generate="36", requests=1000)
    return answer(over_time(question, requests_per_s), policy)


def test_requests_that_fit_the_accelerator_wait_for_no_cohort() -> None:
    found = beside_cohorts(0.2, "rendezvous")
    assert found.arrivals is not None
    assert found.chosen.candidate.strategy == "rendezvous-ahead"
    assert found.arrivals.rows < found.chosen.candidate.device_rows
    assert found.arrivals.on_host == 0
    assert found.arrivals.rates.slow_tpot_s is None
    assert found.cohort_request_s is None
    assert found.request_s == found.main_request_s
    last_s = found.question.lengths.duration_s
    assert found.job_s == pytest.approx(last_s + found.request_s, rel=1e-3)


def test_who_finds_the_accelerator_s_places_taken_goes_to_the_host_and_stays_there() -> None:
    """Though fewer are under way, in the mean, than it has places."""
    found = beside_cohorts(1.0, "rendezvous")
    assert found.arrivals is not None
    arrivals, places = found.arrivals, found.chosen.candidate.device_rows
    assert found.main_request_s is not None
    assert found.cohort_request_s is not None
    assert found.main_request_s * 1.0 < places
    assert 0.01 < arrivals.on_host < 0.1
    assert arrivals.rates.slow_tpot_s is not None
    assert arrivals.rates.slow_tpot_s > 5 * arrivals.rates.tpot_s
    # Little's law in each tier, in whole requests, some of which wait for their turn
    hosted = arrivals.on_host * found.cohort_request_s
    staying = (1 - arrivals.on_host) * found.main_request_s
    assert arrivals.rows == pytest.approx(hosted + staying, abs=0.7)


def test_more_requests_on_the_host_than_come_to_it_by_chance_make_no_difference() -> None:
    """Those few that are there see what few see: what a full host takes is not told of them."""
    few, many = beside_cohorts(1.0, "rendezvous"), beside_cohorts(3.2, "rendezvous")
    assert few.arrivals is not None
    assert many.arrivals is not None
    assert many.arrivals.on_host > 5 * few.arrivals.on_host
    assert few.cohort_request_s is not None
    assert many.cohort_request_s is not None
    assert few.cohort_request_s < 0.8 * many.cohort_request_s
    assert few.arrivals.rows < 0.2 * few.chosen.candidate.rows


def test_no_cohort_runs_where_the_accelerator_s_requests_keep_up() -> None:
    found = beside_cohorts(0.1, "asymmetric")
    assert found.arrivals is not None
    assert found.chosen.candidate.passes
    assert found.arrivals.rows <= found.chosen.candidate.device_rows
    assert found.arrivals.rates.slow_tpot_s is None


def test_a_mean_request_has_a_time_in_each_lane() -> None:
    found = beside_cohorts(3.2, "rendezvous")
    assert found.arrivals is not None
    assert found.arrivals.rows > found.chosen.candidate.device_rows
    rates, tokens = found.arrivals.rates, found.question.lengths.decode_sweeps
    assert rates.slow_tpot_s is not None
    assert found.main_request_s == pytest.approx(rates.ttft_s + tokens * rates.tpot_s)
    assert found.cohort_request_s == pytest.approx(rates.ttft_s + tokens * rates.slow_tpot_s)
    assert found.request_s == found.cohort_request_s


def test_a_job_is_not_shorter_than_its_prompts_and_then_its_tokens() -> None:
    search = Search(ask("llama-3.1-70b", "rtx4090", "server-genoa", requests=394))
    best = search.best(AUTO)
    assert best is not None
    assert best.candidate.rows == 394  # all at once: the first and the last wave are one
    weights_s = best.candidate.streamed * search.footprint.layer_bytes / 25e9
    sweeps = 394 * 512 / 2048 + 127
    assert search.predictor.job_s(best.prediction.rates) >= sweeps * weights_s


def test_a_first_token_is_told_as_the_least_where_sweeps_can_hardly_read_more() -> None:
    """Near the most that can be read, it grows for as long as requests come."""
    question = ask("llama-3.1-8b", "a10g", prompt="1000", generate="4", requests=1000)

    def at(requests_per_s: float) -> Arrivals | None:
        search = Search(over_time(question, requests_per_s))
        best = search.best(AUTO)
        assert best is not None
        return at_arrivals(
            search.predictor, search.footprint, best.candidate, best.prediction.rates
        )

    free, near = at(1.8), at(3.5)
    assert free is not None
    assert near is not None
    assert (free.keeps_up, free.ttft_is_least) == (True, False)
    assert (near.keeps_up, near.ttft_is_least) == (True, True)


@pytest.mark.parametrize(("share", "is_least"), [(0.8, False), (0.97, True)])
def test_a_first_token_is_told_as_the_least_where_places_can_hardly_serve_more(
    share: float, is_least: bool
) -> None:
    question = ask("llama-2-7b", "t4", prompt="325", generate="36", requests=4000)
    best = Search(question).best(AUTO)
    assert best is not None
    rates = best.prediction.rates
    found: list[Arrivals] = []
    for requests in (1000, 4000):
        shapes = question.lengths.shapes[:requests]
        fewer = replace(question, lengths=Lengths.of(Workload("requests", shapes)))
        search = Search(over_time(fewer, share * rates.tokens_per_s / 36))
        each = at_arrivals(search.predictor, search.footprint, best.candidate, rates)
        assert each is not None
        assert each.keeps_up
        assert each.ttft_is_least == is_least
        found.append(each)
    few, many = (each.ttft_s for each in found)
    assert is_least or many == pytest.approx(few, rel=0.1)


def test_what_is_told_of_many_requests_is_of_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = over_time(ask(requests=300), 1.0)
    search = Search(question)
    best = search.best(AUTO)
    assert best is not None
    found: list[Arrivals] = []
    for most in (300, 100):
        monkeypatch.setattr("tandem.planner.arrivals._MOST", most)
        each = at_arrivals(
            search.predictor, search.footprint, best.candidate, best.prediction.rates
        )
        assert each is not None
        found.append(each)
    whole, first = found
    assert whole.job_s is not None
    assert whole.job_s > question.lengths.duration_s
    assert first.job_s is None
    assert whole.ttft_s == pytest.approx(first.ttft_s, rel=0.2)


@pytest.mark.parametrize("rush_last", [False, True])
def test_a_first_token_is_told_as_the_least_where_those_that_come_late_wait_longer(
    rush_last: bool,
) -> None:
    """However few come in the mean: of a rush that is over nobody waits any more."""
    question = ask("llama-3.1-8b", "a10g", prompt="300", generate="8", requests=800)
    best = Search(question).best(AUTO)
    assert best is not None
    rates = best.prediction.rates
    each_s = 8 / rates.tokens_per_s
    gaps_s = [3 * each_s] * 600
    gaps_s = gaps_s + [each_s / 3] * 200 if rush_last else [each_s / 3] * 200 + gaps_s
    arrivals_s = accumulate(gaps_s, initial=0.0)
    shapes = tuple(
        replace(shape, arrival_s=arrival_s)
        for shape, arrival_s in zip(question.lengths.shapes, arrivals_s, strict=False)
    )
    rush = replace(question, lengths=Lengths.of(Workload("requests", shapes)))
    search = Search(rush)
    found = at_arrivals(search.predictor, search.footprint, best.candidate, rates)
    assert found is not None
    assert found.tokens_per_s < 0.5 * rates.tokens_per_s
    assert found.ttft_is_least == rush_last
