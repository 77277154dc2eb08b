"""`--ttft-bound` in virtual time: whose prompts are read first, and how much of them in a step."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.unit.simulator.setups import Case, Served, planned, serve

from tandem.scheduler.first_tokens import PATIENCE
from tandem.simulator.build import Planned
from tandem.spec.workload import RequestShape, Workload

LONG, SHORT = 3500, 100
BOUND_S = 0.3


@pytest.fixture(scope="module")
def plan() -> Planned:
    """The accelerator alone, room for all requests of these tests, steps of 512 tokens."""
    made = planned(Case("gpu-only", 32, 0), "3500", "200", 32)
    return replace(made, plan=replace(made.plan, max_num_batched_tokens=512))


def requests(*shapes: RequestShape) -> Workload:
    return Workload("made up", tuple(sorted(shapes, key=lambda each: each.arrival_s)))


def first_token_s(served: Served, number: int) -> float:
    return served.record.first_s[str(number)] - served.record.requests[number].arrival_s


LONG_AND_SHORT = requests(
    *(RequestShape(LONG, 5) for _ in range(4)),
    *(RequestShape(SHORT, 5, 0.02) for _ in range(12)),
)


def test_more_first_tokens_are_in_time_and_nothing_is_lost(plan: Planned) -> None:
    by_rank, ordered = (
        serve(plan, LONG_AND_SHORT, ttft_bound_s=bound_s) for bound_s in (None, BOUND_S)
    )
    late_by_rank = sum(first_token_s(by_rank, number) > BOUND_S for number in range(16))
    late = sum(first_token_s(ordered, number) > BOUND_S for number in range(16))
    assert late_by_rank >= 12
    # the shorter ones come first, and of the others those that there is time for
    assert late <= 4
    assert max(first_token_s(ordered, number) for number in range(4, 16)) <= BOUND_S
    assert ordered.outcome.ttft_kept == pytest.approx(1 - late / 16)
    assert by_rank.outcome.ttft_kept is None
    assert ordered.record.tokens == by_rank.record.tokens
    assert ordered.machine.executor.now_s <= 1.1 * by_rank.machine.executor.now_s


def test_a_bound_that_all_keep_changes_nothing(plan: Planned) -> None:
    by_rank, ordered = (serve(plan, LONG_AND_SHORT, ttft_bound_s=s) for s in (None, 100.0))
    assert ordered.record == by_rank.record


def test_a_bound_that_none_can_keep_leaves_all_in_their_rank(plan: Planned) -> None:
    by_rank, ordered = (serve(plan, LONG_AND_SHORT, ttft_bound_s=s) for s in (None, 1e-6))
    assert ordered.record == by_rank.record
    assert ordered.outcome.ttft_kept == 0.0


def test_who_is_late_waits_for_no_more_than_some_bounds(plan: Planned) -> None:
    """Short prompts come faster than they can be read, and a long one would wait for all."""
    bound_s = 0.1
    stream = [RequestShape(SHORT, 1, 0.001 + 0.003 * number) for number in range(700)]
    load = requests(RequestShape(LONG, 5), *stream)
    served = serve(plan, load, ttft_bound_s=bound_s)
    alone_s = first_token_s(serve(plan, requests(RequestShape(LONG, 5))), 0)
    assert alone_s > bound_s
    assert 2 * alone_s < first_token_s(served, 0) <= PATIENCE * bound_s + 2 * alone_s
    assert served.machine.executor.now_s > 3 * PATIENCE * bound_s
    assert sum(served.record.tokens.values()) == 5 + len(stream)


def test_who_is_being_read_gives_way_and_keeps_its_memory(plan: Planned) -> None:
    """A pool for the long prompt and a few short ones; nobody is preempted for who goes first."""
    blocks = -(-(LONG + 200) // plan.plan.block_size)
    small = replace(plan, plan=replace(plan.plan, device_blocks=blocks + blocks // 16 + 12))
    late = requests(RequestShape(LONG, 5), *(RequestShape(SHORT, 5, 0.05) for _ in range(10)))
    served = serve(small, late, ttft_bound_s=0.14)
    assert served.outcome.preemptions == 0
    assert first_token_s(served, 1) <= 0.14 < first_token_s(served, 0)


def longest_gap_s(served: Served) -> float:
    """Between two moments at which tokens came."""
    return max(after - before for (before, _), (after, _) in pairwise(served.record.progress[1:]))


def test_prompts_are_cut_for_who_decodes_while_nobody_is_late_for_it(plan: Planned) -> None:
    load = requests(
        *(RequestShape(SHORT, 200) for _ in range(4)),
        *(RequestShape(LONG, 5, 0.2) for _ in range(2)),
    )
    whole = longest_gap_s(serve(plan, load))
    tpot_bound_s = whole / 2
    bounded = replace(plan, question=replace(plan.question, tpot_bound_s=tpot_bound_s))
    loose, tight = (serve(bounded, load, ttft_bound_s=bound_s) for bound_s in (10.0, 0.48))
    assert longest_gap_s(serve(bounded, load)) == whole  # without a bound on first tokens: whole
    assert longest_gap_s(loose) <= 1.05 * tpot_bound_s
    # cut prompts would make the second one late
    assert first_token_s(tight, 5) <= 0.48 < first_token_s(loose, 5)
    assert longest_gap_s(tight) > 1.5 * tpot_bound_s


def test_who_would_be_late_for_want_of_room_starts_on_the_host_as_late_as_it_may() -> None:
    """Four decode for long where there is room for four; a fifth has few tokens to repay its prompt
    on the host, and would wait for one of them to end.
    """
    made = planned(Case("ride-along", 4, 4), "300", "2-500", 8)
    few = replace(made.plan, strategy="auto", max_device_seqs=4)
    load = requests(*(RequestShape(300, 400) for _ in range(4)), RequestShape(300, 2, 0.5))
    bound_s = 1.0
    waits, starts = (
        serve(replace(made, plan=few), load, ttft_bound_s=bound) for bound in (None, bound_s)
    )
    assert first_token_s(waits, 4) > 2 * bound_s
    assert bound_s / 2 < first_token_s(starts, 4) <= bound_s
    assert starts.record.tokens == waits.record.tokens
