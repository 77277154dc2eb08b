"""Places of a block, parts of its prompts, and when empty places are filled again."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.support.blocks import small_plan

from tandem.plan.events import Failed, TokensSampled
from tandem.plan.offline import OfflinePlan
from tandem.plan.program import StepProgram
from tandem.plan.weights import Home
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.scheduler.blocks.places import KVHome
from tandem.scheduler.config import SchedulerConfig
from tandem.spec.errors import ContextLengthError, EngineDeadError, OverloadError, RequestError
from tandem.spec.request import EngineRequest, FinishReason, RequestOutput
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

RESIDENT: tuple[Home, ...] = ("resident",) * 4
STREAMED: tuple[Home, ...] = ("streamed",) * 4
LENT: tuple[Home, ...] = ("host",) * 4


def scheduler_of(plan: OfflinePlan, *, queued: int | None = None, **more: int) -> BlockScheduler:
    config = SchedulerConfig(
        4,
        plan.max_model_len,
        plan.block_size,
        max_num_queued_reqs=queued,
        max_len_is_planned=True,
    )
    return BlockScheduler(plan, config, vocab_size=50, eos_ids=(2,), **more)


def asked(name: str, length: int = 4, count: int = 3, priority: int = 0) -> EngineRequest:
    params = SamplingParams(max_tokens=count, temperature=0.0)
    return EngineRequest(name, (7,) * length, params, priority=priority)


def answer(scheduler: BlockScheduler, program: StepProgram, token: int = 9) -> list[RequestOutput]:
    """The same token for every row."""
    outputs: list[RequestOutput] = []
    for lane, slot in enumerate(program.lanes):
        rows = len(slot.binding.rows)
        if rows:
            ids, valid = np.full(rows, token), np.ones(rows, dtype=np.bool_)
            outputs += scheduler.observe([TokensSampled(program.step_id, lane, ids, valid)])
    scheduler.check()
    return outputs


def lanes_of(program: StepProgram) -> list[int]:
    """Rows of each lane."""
    return [len(slot.binding.rows) for slot in program.lanes]


def test_requests_are_spread_over_batches_and_all_get_a_token_at_a_time() -> None:
    scheduler = scheduler_of(small_plan(RESIDENT, batches=3, resident_rows=2))
    for i in range(4):
        scheduler.add(asked(str(i), count=2))
    (prompts,) = scheduler.schedule()
    assert prompts.template.name == "prefill"
    assert scheduler.schedule() == []
    assert {output.request_id for output in answer(scheduler, prompts)} == set("0123")
    (passed,) = scheduler.schedule()
    assert lanes_of(passed) == [2, 1, 1]
    assert all(o.finish_reason is FinishReason.LENGTH for o in answer(scheduler, passed))
    assert not scheduler.has_work
    assert scheduler.places.num_taken == 0


def test_parts_hold_whole_prompts_within_tokens_slots_and_rows() -> None:
    plan = small_plan(RESIDENT, batches=1, cpu_rows=9, prefill_tokens=40, max_model_len=41)
    scheduler = scheduler_of(plan)
    assert scheduler.room.slot_blocks == 3
    for i, length in enumerate((1, 1, 1, 1, 30, 30, 38, 5)):
        scheduler.add(asked(str(i), length))
    (prompts,) = scheduler.schedule()
    # three prompts of a block each fill a slot; 30 + 30 tokens are too many, but not 30 + 5
    assert lanes_of(prompts) == [3, 2, 2, 1]
    for slot in prompts.lanes:
        assert slot.passing is not None
        assert slot.passing.slot_blocks.max() < scheduler.room.slot_blocks
    few = scheduler_of(small_plan(RESIDENT, batches=4, resident_rows=1))
    for i in range(4):
        few.add(asked(str(i), 1))
    assert lanes_of(few.schedule()[0]) == [1, 1, 1, 1]  # logits of a batch at a time


def test_prompts_are_bounded_by_what_memory_holds_of_them() -> None:
    plan = small_plan(RESIDENT, batches=1, resident_rows=4)
    scheduler = scheduler_of(plan, prompt_tokens=50)
    for i in range(3):
        scheduler.add(asked(str(i), 30))
    assert sum(lanes_of(scheduler.schedule()[0])) == 1


def test_places_are_filled_at_once_if_no_weights_are_streamed() -> None:
    scheduler = scheduler_of(small_plan(RESIDENT, batches=1, resident_rows=2))
    for i, count in enumerate((5, 1, 1)):
        scheduler.add(asked(str(i), count=count))
    answer(scheduler, scheduler.schedule()[0])
    (second,) = scheduler.schedule()
    assert (second.template.name, lanes_of(second)) == ("prefill", [1])


def test_with_streamed_weights_places_are_filled_when_a_pass_s_tokens_were_lost() -> None:
    scheduler = scheduler_of(small_plan(STREAMED, batches=1, resident_rows=3))
    for i, count in enumerate((9, 9, 1, 1)):
        scheduler.add(asked(str(i), count=count))
    names: list[str] = []
    for _ in range(6):
        program = scheduler.schedule()[-1]
        names.append(program.template.name)
        answer(scheduler, program)
    assert names == ["prefill", "block", "block", "block", "prefill", "block"]


@pytest.mark.parametrize(("longest", "entering"), [(8, [3]), (9, [2, 1])])
def test_those_that_are_left_are_waited_for_if_they_are_over_soon(
    longest: int, entering: list[int]
) -> None:
    """One pass of two empty places costs less than another program over prompts, two do not."""
    scheduler = scheduler_of(small_plan(STREAMED, batches=1, resident_rows=3))
    for i, count in enumerate((longest, 5, 5, 4, 4, 4)):
        scheduler.add(asked(str(i), count=count))
    found: list[int] = []
    while scheduler.has_work:
        program = scheduler.schedule()[-1]
        if program.template.name == "prefill":
            found.append(sum(lanes_of(program)))
        answer(scheduler, program)
    assert found == [3, *entering]


def test_long_sequences_grow_into_what_short_ones_leave() -> None:
    """Two and three blocks at their ends, in four: one is over when the other grows."""
    plan = small_plan(RESIDENT, batches=1, resident_rows=2, row_blocks=2)
    scheduler = scheduler_of(plan)
    scheduler.add(asked("short", 17, 10))
    scheduler.add(asked("long", 17, 29))
    held: list[int] = []
    while scheduler.has_work:
        answer(scheduler, scheduler.schedule()[0])
        held.append(scheduler.places.counts(Tier.DEVICE).held)
    assert held[0] == 4
    assert max(held[10:]) == 3


def test_who_would_outgrow_the_memory_waits() -> None:
    plan = replace(small_plan(RESIDENT, batches=1, resident_rows=2), device_blocks=5)
    scheduler = scheduler_of(plan)
    for name in ("a", "b"):
        scheduler.add(asked(name, 17, 29))  # three blocks each, from the same pass on
    (prompts,) = scheduler.schedule()
    assert lanes_of(prompts) == [1]
    answer(scheduler, prompts)
    begun: list[int] = []
    for step in range(40):
        (program,) = scheduler.schedule()
        if program.template.name == "prefill":
            begun.append(step)
        answer(scheduler, program)
    # the first one's third block is free when the other one needs it
    assert begun == [13]


def test_the_longest_go_first_unless_they_keep_others_out() -> None:
    plan = replace(small_plan(RESIDENT, batches=1, resident_rows=3), device_blocks=2)
    scheduler = scheduler_of(plan)
    # tokens in and out; blocks: 2, 1, 2, 1, 1
    for name, *tokens in (("a", 17, 3), ("b", 4, 12), ("c", 17, 10), ("d", 4, 2), ("e", 4, 5)):
        scheduler.add(asked(name, *tokens))
    (prompts,) = scheduler.schedule()
    assert {output.request_id for output in answer(scheduler, prompts)} == {"b", "d"}
    order = [output.request_id for output in _finished(scheduler)]
    assert order == ["d", "e", "b", "c", "a"]


def test_a_higher_priority_goes_first_though_it_keeps_others_out() -> None:
    plan = replace(small_plan(RESIDENT, batches=1, resident_rows=3), device_blocks=2)
    scheduler = scheduler_of(plan)
    for name, length, priority in (("b", 4, 1), ("c", 4, 1), ("a", 17, 0)):
        scheduler.add(asked(name, length, count=2, priority=priority))
    assert [output.request_id for output in _finished(scheduler)] == ["a", "b", "c"]


def test_nobody_enters_a_block_that_drains() -> None:
    scheduler = scheduler_of(small_plan(RESIDENT, batches=1, resident_rows=2))
    for name, count in (("a", 4), ("b", 1), ("c", 1)):
        scheduler.add(asked(name, count=count))
    answer(scheduler, scheduler.schedule()[0])
    scheduler.drains = True
    while programs := scheduler.schedule():
        assert [(each.template.name, lanes_of(each)) for each in programs] == [("block", [1])]
        answer(scheduler, programs[0])
    assert scheduler.is_empty
    assert [each.request_id for each in scheduler.hand_over().waiting] == ["c"]


def test_another_plan_goes_on_with_the_numbers_of_arrivals() -> None:
    """Seeds of requests without one derive from them."""
    plan = small_plan(RESIDENT, batches=1, resident_rows=2)
    before, after = scheduler_of(plan), scheduler_of(plan)
    before.add(asked("a"))
    before.add(asked("b"))
    after.take_over(before.hand_over())
    after.add(asked("c"))
    assert [each.arrival for each in after.waiting] == [0, 1, 2]
    assert len({each.seed for each in after.waiting}) == 3


def test_those_that_are_left_are_gathered_when_nobody_waits() -> None:
    """Where the CPU computes layers, whose weights it reads once for each batch."""
    plan = small_plan(LENT, cpu_layers=(2, 3), batches=3, resident_rows=2)
    scheduler = scheduler_of(plan)
    for i, count in enumerate((9, 9, 9, 2, 2, 2)):
        scheduler.add(asked(str(i), count=count))
    assert plan.shape.batches_part
    answer(scheduler, scheduler.schedule()[0])
    seen: list[list[int]] = []
    for _ in range(2):
        (program,) = scheduler.schedule()
        seen.append(lanes_of(program))
        answer(scheduler, program)
    assert seen == [[2, 2, 2], [2, 1, 0]]


@pytest.mark.parametrize(("pinned", "streamed"), [(10, 0), (30, 2)])
def test_only_what_is_pinned_comes_to_be_streamed(pinned: int, streamed: int) -> None:
    plan = small_plan(STREAMED, batches=1, streamed_rows=1, cpu_rows=2)
    scheduler = scheduler_of(replace(plan, pinned_blocks=pinned))
    for i in range(2):
        scheduler.add(asked(str(i), count=9))
    answer(scheduler, scheduler.schedule()[0])
    places = scheduler.places
    rows = places.rows.owned()
    assert (places.home[rows] == KVHome.CPU).all()
    scheduler.share(3)
    scheduler.check()
    assert int((places.home[rows] == KVHome.STREAMED).sum()) == streamed


def _finished(scheduler: BlockScheduler) -> Iterator[RequestOutput]:
    while scheduler.has_work:
        for output in answer(scheduler, scheduler.schedule()[-1]):
            if output.finish_reason is not None:
                yield output


def test_places_without_room_are_not_idle() -> None:
    """With streamed weights: whoever finds no room is no reason to read prompts."""
    plan = small_plan(STREAMED, batches=1, resident_rows=4, row_blocks=1)
    scheduler = scheduler_of(plan)
    for i in range(3):
        scheduler.add(asked(str(i), 17, 30))
    names = ""
    while scheduler.has_work:
        program = scheduler.schedule()[-1]
        names += program.template.name[0]
        answer(scheduler, program)
    assert names.count("p") == 3


def test_streamed_kv_is_brought_before_the_first_pass_only() -> None:
    scheduler = scheduler_of(small_plan(RESIDENT, batches=2, streamed_rows=1))
    scheduler.add(asked("0", count=4))
    answer(scheduler, scheduler.schedule()[0])
    kinds = []
    for _ in range(2):
        programs = scheduler.schedule()
        kinds.append([program.template.name for program in programs])
        answer(scheduler, programs[-1])
    assert kinds == [["fill", "block"], ["block"]]


def test_a_request_aborted_while_its_token_is_awaited_is_not_heard_of_again() -> None:
    scheduler = scheduler_of(small_plan(RESIDENT, batches=2, resident_rows=1))
    for name in "ab":
        scheduler.add(asked(name))
    (prompts,) = scheduler.schedule()
    scheduler.abort("a")
    scheduler.add(asked("a"))
    assert [output.request_id for output in answer(scheduler, prompts)] == ["b"]
    assert scheduler.places.num_taken == 1
    assert lanes_of(scheduler.schedule()[0]) == [1]


def test_end_tokens_and_unusable_logits_end_a_request() -> None:
    scheduler = scheduler_of(small_plan(RESIDENT, batches=1, resident_rows=2))
    for name in "ab":
        scheduler.add(asked(name))
    (prompts,) = scheduler.schedule()
    ids, valid = np.array([2, 9]), np.array([True, False])
    stopped, failed = scheduler.observe([TokensSampled(prompts.step_id, 0, ids, valid)])
    assert (stopped.finish_reason, stopped.stop_token_id) == (FinishReason.STOP, 2)
    assert failed.finish_reason is FinishReason.ERROR
    assert "not a number" in (failed.error or "")
    assert not scheduler.has_work


def test_what_can_never_run_is_refused_with_the_numbers() -> None:
    plan = small_plan(RESIDENT, batches=1, resident_rows=1, row_blocks=2)
    scheduler = scheduler_of(plan, queued=1)
    with pytest.raises(ContextLengthError, match="the plan is for requests of at most 200 tokens"):
        scheduler.add(asked("long", 1, 200))
    with pytest.raises(ContextLengthError, match="2 KV blocks of 16 tokens on the acc"):
        scheduler.add(asked("large", 30, 10))
    scheduler.add(asked("a", 30, 3))
    with pytest.raises(RequestError, match="'a' is in use"):
        scheduler.add(asked("a"))
    with pytest.raises(OverloadError):
        scheduler.add(asked("b"))


def test_a_failed_operation_ends_the_engine() -> None:
    scheduler = scheduler_of(small_plan(RESIDENT, batches=1, resident_rows=1))
    with pytest.raises(EngineDeadError, match="step 3 failed: why"):
        scheduler.observe([Failed(3, "why")])
