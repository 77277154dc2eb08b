"""How many more requests may run than are counted, while those that run are young."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.planner.questions import SMALL, ask, over_time

from tandem.planner.answer import answer, online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.while_young import more_while_young
from tandem.spec.kv_type import CodeType


def asked(generate: str = "900-1100", tile: int | None = None, **changes: Any) -> Question:
    question = ask(SMALL, "a10g", prompt="1", generate=generate, requests=2000)
    weights = Footprint(question).resident_bytes(Elsewhere())
    card = replace(question.hardware.accelerator, tile_rows=tile)
    hardware = replace(question.hardware, accelerator=card)
    return replace(question, hardware=hardware, device_bytes=int(weights + 2.5e9), **changes)


def more_of(question: Question, candidate: Candidate) -> int:
    search = Search(question)
    return more_while_young(question, search.footprint, search.predictor, candidate)


def chosen(question: Question) -> tuple[Search, Option]:
    search = Search(question)
    option = search.choice(POLICIES["gpu-only"])
    assert option is not None
    return search, option


def test_more_may_run_than_are_counted_as_many_as_fill_memory_while_all_are_young() -> None:
    search, option = chosen(asked())
    rows, held = option.candidate.device_rows, search.footprint.held
    more = more_of(search.question, option.candidate)
    pool = search.footprint.device_blocks(option.candidate)
    younger = 2 * held.deviation * rows**0.5
    assert more > 0
    # with that many, two deviations younger than in the mean, the pool is full
    assert pool - 2 * held.mean < (rows + more) * held.mean - younger <= pool


def test_the_plan_has_places_for_them_and_memory_for_their_rows() -> None:
    search, option = chosen(asked())
    plan = online_plan(search, option)
    more = more_of(search.question, option.candidate)
    assert plan.max_num_seqs == option.candidate.rows + more
    used = search.footprint.resident_bytes(option.candidate.elsewhere)
    used += search.footprint.workspace_of(option.candidate, more)
    assert used + plan.device_blocks * search.footprint.block_bytes <= search.question.device_bytes


def test_what_is_told_of_memory_has_room_for_their_rows() -> None:
    found = answer(over_time(asked(), 1.0), "gpu-only")
    footprint, candidate = Search(found.question).footprint, found.chosen.candidate
    more = more_of(found.question, candidate)
    assert more > 0
    workspace_bytes = footprint.workspace_of(candidate, more)
    assert found.device.workspace_bytes == workspace_bytes > footprint.workspace_of(candidate)


def test_jobs_in_step_have_the_places_that_they_were_lived_through_with() -> None:
    search, option = chosen(asked())
    plan = online_plan(search, replace(option, in_step_per_s=1.0))
    assert plan.max_num_seqs == option.candidate.rows


def test_beside_the_host_only_those_on_the_accelerator_are_more() -> None:
    search, option = chosen(asked())
    rows = option.candidate.device_rows
    candidate = candidate_of("rendezvous", Elsewhere(), rows, 20)
    plan = online_plan(search, Option(candidate, search.predictor.predict(candidate)))
    assert plan.max_device_seqs > rows
    assert plan.max_host_seqs == 20
    assert plan.max_num_seqs == plan.max_device_seqs + 20


def test_there_may_be_more_still_where_who_is_preempted_is_copied() -> None:
    """Beside the host; not where its KV would be rounded on the way."""
    search, option = chosen(asked())
    candidate = candidate_of("rendezvous", Elsewhere(), option.candidate.device_rows, 20)
    copied = more_of(search.question, candidate)
    held, pool = search.footprint.held, search.footprint.device_blocks(candidate)
    rows = candidate.device_rows
    assert 1.5 * pool - 2 * held.mean < (rows + copied) * held.mean <= 1.5 * pool
    rounded = replace(search.question.precision, host_kv=CodeType.INT8)
    assert 0 < more_of(replace(search.question, precision=rounded), candidate) < copied


@pytest.mark.parametrize(
    ("generate", "changes"),
    [("40-60", {}), ("900-1100", {"tpot_bound_s": 1.0}), ("900-1100", {"objective": "latency"})],
    ids=["they hold as much at any age", "a bound on time per token", "one at a time"],
)
def test_none_are_more(generate: str, changes: dict[str, Any]) -> None:
    question = asked(generate, **changes)
    assert more_of(question, candidate_of("gpu-only", Elsewhere(), 40, 0)) == 0


def test_no_more_than_pay_where_a_tile_is_full() -> None:
    """All that memory has room for would begin a tile more, of which they fill little."""
    candidate = candidate_of("gpu-only", Elsewhere(), 64, 0)
    free, tiled = more_of(asked(), candidate), more_of(asked(tile=64), candidate)
    assert 0 < tiled < free
    rates = Search(asked(tile=64)).predictor.rates
    some, all_of_them = (
        rates(candidate._replace(device_rows=64 + more)).tokens_per_s for more in (tiled, free)
    )
    assert some > all_of_them
