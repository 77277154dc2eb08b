"""How long jobs take, and what requests see that come over time."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.answer import Answer, answer
from tandem.planner.arrivals import Arrivals, at_arrivals
from tandem.planner.overflow import overflow_share
from tandem.planner.policies import POLICIES
from tandem.planner.search.search import Search

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
    question = ask("llama-3.1-8b", "rtx4090", requests=1000)
    spread = replace(question.lengths, duration_s=999 / requests_per_s)
    return answer(replace(question, lengths=spread))


def test_requests_that_come_slowly_run_alone_and_see_it() -> None:
    found = arriving(0.1)
    assert found.arrivals is not None
    assert found.arrivals.keeps_up
    assert found.arrivals.rows == 1
    assert found.arrivals.tokens_per_s == pytest.approx(0.1 * 128)
    alone = answer(ask("llama-3.1-8b", "rtx4090", objective="latency")).chosen.prediction.rates
    assert found.arrivals.rates.tpot_s == pytest.approx(alone.tpot_s, rel=0.15)
    assert found.arrivals.rates.tpot_s < 0.5 * found.chosen.prediction.rates.tpot_s
    assert found.job_s == pytest.approx(9990 + found.request_s)


def test_rows_grow_with_the_rate_until_requests_queue() -> None:
    found = [arriving(rate) for rate in (2.0, 8.0, 20.0)]
    loads = [each.arrivals for each in found]
    assert [load.keeps_up for load in loads if load] == [True, True, False]
    rows = [load.rows for load in loads if load]
    assert 1 < rows[0] < rows[1] < rows[2] == found[2].chosen.candidate.rows
    # Little's law: as many run as come in the time that each takes
    assert rows[1] == pytest.approx(8 * found[1].request_s, rel=0.2)
    assert found[2].job_s > 1.5 * 999 / 20
    assert answer(ask()).arrivals is None


def beside_cohorts(requests_per_s: float, policy: str) -> Answer:
    """At a T4 that most requests do not fit: a few there, the others in cohorts on the host."""
    question = ask("llama-2-7b", "t4", prompt="325", generate="36", requests=1000)
    spread = replace(question.lengths, duration_s=999 / requests_per_s)
    return answer(replace(question, lengths=spread), policy)


def test_requests_that_fit_the_accelerator_wait_for_no_cohort() -> None:
    found = beside_cohorts(0.4, "rendezvous")
    assert found.arrivals is not None
    assert found.chosen.candidate.strategy == "rendezvous-ahead"
    assert found.arrivals.rows < found.chosen.candidate.device_rows
    assert found.arrivals.on_host == 0
    assert found.arrivals.rates.slow_tpot_s is None
    assert found.cohort_request_s is None
    assert found.request_s == found.main_request_s
    # Little's law, in whole requests
    assert found.arrivals.rows - 1 < 0.4 * found.request_s <= found.arrivals.rows
    assert found.job_s == pytest.approx(999 / 0.4 + found.request_s)


def test_who_finds_the_accelerator_s_places_taken_goes_to_the_host_and_stays_there() -> None:
    """Though fewer are under way, in the mean, than it has places."""
    found = beside_cohorts(1.0, "rendezvous")
    assert found.arrivals is not None
    places = found.chosen.candidate.device_rows
    assert found.main_request_s is not None
    assert found.cohort_request_s is not None
    assert found.main_request_s * 1.0 < places
    expected = overflow_share(places, found.main_request_s * 1.0)
    assert found.arrivals.on_host == pytest.approx(expected, rel=0.1)
    assert 0.01 < found.arrivals.on_host < 0.1
    # Little's law in each tier, in whole requests
    hosted = found.arrivals.on_host * found.cohort_request_s
    staying = (1 - found.arrivals.on_host) * found.main_request_s
    assert found.arrivals.rows == round(hosted) + round(staying)


def test_no_cohort_runs_where_the_accelerator_s_requests_keep_up() -> None:
    # a few more, of which one is in a cohort with passes of its own, serve fewer tokens
    found = beside_cohorts(0.3, "asymmetric")
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
        lengths = replace(question.lengths, duration_s=999 / requests_per_s)
        search = Search(replace(question, lengths=lengths))
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


@pytest.mark.parametrize(("share", "is_least"), [(0.8, False), (0.95, True)])
def test_a_first_token_is_told_as_the_least_where_places_can_hardly_serve_more(
    share: float, is_least: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once was 2 s after so many requests and 64 s after four times as many."""
    question = ask("llama-2-7b", "t4", prompt="325", generate="36", requests=1000)
    search = Search(question)
    best = search.best(AUTO)
    assert best is not None
    rates = best.prediction.rates
    spread = replace(question.lengths, duration_s=999 * 36 / (share * rates.tokens_per_s))
    search = Search(replace(question, lengths=spread))
    found: list[Arrivals] = []
    for drawn in (2000, 8000):
        monkeypatch.setattr("tandem.planner.first_token._DRAWN", drawn)
        each = at_arrivals(search.predictor, search.footprint, best.candidate, rates)
        assert each is not None
        assert each.keeps_up
        assert each.ttft_is_least == is_least
        found.append(each)
    few, many = (each.ttft_s for each in found)
    assert few is not None
    assert is_least or many == pytest.approx(few, rel=0.1)
