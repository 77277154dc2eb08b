"""Whatever sequences come to a block and whenever they end: all are served, none ever leaves."""

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.blocks import small_plan

from tandem.plan.events import TokensSampled
from tandem.plan.prefill_template import PROMPTS
from tandem.plan.program import OpKind, Part, Queue, StepProgram
from tandem.plan.weights import Home
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.scheduler.blocks.places import KVHome
from tandem.scheduler.config import SchedulerConfig
from tandem.spec.errors import ContextLengthError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

STREAMED: tuple[Home, ...] = ("streamed",) * 4
RESIDENT: tuple[Home, ...] = ("resident",) * 4
LENT: tuple[Home, ...] = ("host",) * 4


def has_home_of_all(program: StepProgram) -> bool:
    """Whether a pass has operations for whatever becomes of its sequences' KV."""
    kinds = {(op.kind, op.queue, op.part) for op in program.template.ops}
    attends = (OpKind.ATTEND, Queue.CPU, Part.NONE) in kinds
    brings = (OpKind.COPY, Queue.H2D, Part.CACHE) in kinds
    prompts = program.template.name == PROMPTS
    return all(
        (attends or Tier.HOST not in slot.binding.attention)
        and (brings or prompts or slot.passing is None)
        for slot in program.lanes
    )


@settings(max_examples=40)
@given(
    rows=st.tuples(*[st.integers(0, 4)] * 3).filter(any),
    batches=st.integers(1, 3),
    row_blocks=st.integers(3, 6),
    made=st.integers(0, 2),
    homes=st.sampled_from((STREAMED, RESIDENT, LENT)),
    asked=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 50)), min_size=1, max_size=30),
    data=st.data(),
)
def test_all_sequences_run_to_their_end_in_the_blocks_that_there_are(
    rows: tuple[int, int, int],
    batches: int,
    row_blocks: int,
    made: int,
    homes: tuple[Home, ...],
    asked: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    plan = small_plan(
        homes,
        batches=batches,
        resident_rows=rows[0],
        streamed_rows=rows[1],
        cpu_rows=rows[2],
        recomputed_tokens=16 * made if rows[1] and homes != LENT else 0,
        row_blocks=row_blocks,
        max_model_len=90,
        cpu_layers=(2, 3) if homes == LENT else (),
    )
    if plan.streamed_rows and data.draw(st.booleans()):
        least = 1 if plan.recomputed_tokens else plan.streamed_rows * plan.batches
        plan = replace(plan, pinned_blocks=data.draw(st.integers(least, plan.host_blocks)))
    config = SchedulerConfig(4, plan.max_model_len, plan.block_size)
    scheduler = BlockScheduler(plan, config, vocab_size=50, eos_ids=(2,))
    wanted = 0
    for i, (prompt, count) in enumerate(asked):
        params = SamplingParams(max_tokens=count, temperature=0.0)
        with suppress(ContextLengthError):  # more than all that there is
            scheduler.add(EngineRequest(str(i), (7,) * prompt, params))
            wanted += 1
    ended = 0
    early = data.draw(st.integers(0, 10))  # so many tokens of 50 are an end
    draw = np.random.default_rng(early)
    shared = data.draw(st.booleans()) and plan.host_rows > 0 and not plan.recomputed_tokens
    for _ in range(5000):
        if not scheduler.has_work:
            break
        if shared and draw.random() < 0.3:
            scheduler.share(int(draw.integers(0, plan.host_rows + 1)))
            scheduler.check()
        program = scheduler.schedule()[-1]
        assert has_home_of_all(program)
        if plan.shape.batches_part and not scheduler.waiting and program.template.name != PROMPTS:
            sizes = [len(slot.binding.rows) for slot in program.lanes]
            taken = [size for size in sizes if size]
            assert len(taken) == math.ceil(sum(taken) / plan.batch_rows)
            assert max(taken) <= math.ceil(sum(taken) / len(taken))
        for lane, slot in enumerate(program.lanes):
            count = len(slot.binding.rows)
            if count:
                ids = np.where(draw.integers(0, 50, count) < early, 2, 9)
                valid = np.ones(count, dtype=np.bool_)
                event = TokensSampled(program.step_id, lane, ids, valid)
                outputs = scheduler.observe([event])
                ended += sum(output.finish_reason is not None for output in outputs)
        scheduler.check()
        places = scheduler.places
        for row in places.rows.owned()[places.home[places.rows.owned()] == int(KVHome.STREAMED)]:
            held = places.rows.block_ids[row, places.made[row] : places.rows.num_blocks[row]]
            assert (held < plan.pinned_host_blocks).all()
        edge = plan.pinned_host_blocks
        for slot in program.lanes:
            for run in () if slot.passing is None else slot.passing.runs:
                assert not run.host_block < edge < run.host_block + run.count
    assert ended == wanted
    assert all(scheduler.places.counts(tier).held == 0 for tier in Tier)
