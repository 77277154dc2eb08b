"""What bounds count of a pass is what its program does."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.unit.planner.questions import SMALL, ask, with_disk

from tandem.plan.block_template import block_template
from tandem.plan.prefill_template import prefill_template
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.pass_work import PassTerm, PassWork
from tandem.planner.offline.times import BlockTimes

OTHERS = BlockCandidate(2, 0, 3, 2, 4)
_Counts = Counter[tuple[OpKind, Queue, Part]]


def counted(terms: tuple[PassTerm, ...]) -> _Counts:
    found: _Counts = Counter()
    for term in terms:
        found[term.op.kind, term.op.queue, term.op.part] += term.times
    return found


def built(ops: tuple[ProgramOp, ...]) -> _Counts:
    return Counter((op.kind, op.queue, op.part) for op in ops)


def boundaries(counts: _Counts) -> _Counts:
    """Activations between layers of which one is the CPU's, which bounds leave out."""
    return Counter({key: n for key, n in counts.items() if key[2] is Part.RESIDUAL})


@pytest.mark.parametrize(
    "candidate",
    [
        OTHERS,
        replace(OTHERS, streamed=6),
        replace(OTHERS, streamed=6, on_disk=2),
        replace(OTHERS, streamed=6, mlps=True, lent=2),
        replace(OTHERS, streamed=7, mlps=True, on_disk=2),
        replace(OTHERS, streamed=6, recomputed_tokens=64),
        BlockCandidate(3, 2, 0, 0, 5),
    ],
)
def test_all_operations_of_passes_are_counted(candidate: BlockCandidate) -> None:
    work, shape = PassWork(SMALL), candidate.shape(SMALL.num_layers)
    assert counted(work.decode(candidate)) == built(block_template(shape).ops)
    prompts = built(prefill_template(replace(shape, mlps_on_cpu=())).ops)
    assert counted(work.prefill(candidate)) == prompts - boundaries(prompts)


def test_whole_layers_on_the_cpu_are_counted_but_for_the_activations_between_layers() -> None:
    candidate = replace(OTHERS, streamed=6, lent=3)
    program = built(block_template(candidate.shape(SMALL.num_layers)).ops)
    assert counted(PassWork(SMALL).decode(candidate)) == program - boundaries(program)


def test_numbers_of_sequences_change_no_operation() -> None:
    work = PassWork(SMALL)
    more = replace(OTHERS, resident_rows=30, streamed_rows=7)
    assert work.decode(OTHERS) is work.decode(more)
    assert work.decode(OTHERS) != work.decode(replace(OTHERS, cpu_rows=0))


def test_a_way_is_one_batch_in_all_layers() -> None:
    question = with_disk(ask(SMALL, "t4"), None)
    bound = BlockTimes(question).bound
    one, four = (bound.decode_busy(replace(OTHERS, batches=batches)).way_s for batches in (1, 4))
    assert one == four
    assert one < bound.decode_busy(replace(OTHERS, batches=1, cpu_rows=40)).way_s
