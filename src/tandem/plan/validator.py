"""Check that programs are complete: nothing is left to the interpreter's luck (invariant 3).

Happens-before is computed with a vector clock per operation (one entry per queue). Two accesses to
one buffer, at least one a write, must be ordered by it. Exempt are KV pages against page copies:
the block pool keeps their blocks apart (a copy's target is IN_TRANSFER, its source row is
quiescent). A buffer that every layer writes anew must hold the reader's own layer, and a queue
touches only memory that it reaches: otherwise a copy is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tandem.plan.block_shape import (
    CACHE_SLOT,
    PREFIX_PAGES,
    PREFIX_SLOT,
    RECOMPUTED,
    STREAMED_PAGES,
)
from tandem.plan.program import BufferRef, OpKind, Part, ProgramOp, ProgramTemplate, Queue
from tandem.plan.template_builder import (
    COLUMN_SUM,
    DEVICE_PARTIAL,
    EXPERT_SUM,
    FETCHED_COLUMNS,
    FETCHED_PARTIAL,
    HOST_COLUMNS,
    HOST_PARTIAL,
    HOST_QKV,
    HOST_STATE,
    HOST_WEIGHTS,
    LOGITS,
    PARTS_OF_WEIGHTS,
    QKV,
    SAMPLED,
    SLOTS,
    STAGED_INPUT,
    STAGED_PARTIAL,
    STAGED_QKV,
    STATE,
    TOKENS,
    WEIGHTS,
    pages,
)
from tandem.spec.tier import Tier

Clock = dict[Queue, int]
_Key = tuple[object, ...]
_PROGRAM_LOCAL = {SAMPLED, TOKENS}
# what the engine, or the program before, fills before the first program
_ALWAYS_DEFINED = {
    SLOTS, WEIGHTS, *PARTS_OF_WEIGHTS.values(), HOST_WEIGHTS, CACHE_SLOT, PREFIX_SLOT,
}  # fmt: skip
_PER_LAYER = {
    QKV, HOST_QKV, STAGED_QKV, DEVICE_PARTIAL, HOST_PARTIAL, STAGED_PARTIAL, FETCHED_PARTIAL,
    EXPERT_SUM, COLUMN_SUM, WEIGHTS, *PARTS_OF_WEIGHTS.values(), HOST_WEIGHTS, CACHE_SLOT,
    PREFIX_SLOT, RECOMPUTED, HOST_COLUMNS, FETCHED_COLUMNS, STAGED_INPUT,
}  # fmt: skip
# what a cohort brings from an earlier sweep
_CARRIED = {STATE, DEVICE_PARTIAL, HOST_PARTIAL}
_IN_HOST_MEMORY = {
    HOST_STATE, HOST_QKV, HOST_PARTIAL, FETCHED_PARTIAL, TOKENS, HOST_WEIGHTS, HOST_COLUMNS,
    FETCHED_COLUMNS, pages(Tier.HOST, -1).name, STREAMED_PAGES, PREFIX_PAGES,
}  # fmt: skip


class ProgramError(AssertionError):
    """A program that could read too early, overwrite too early, or never end."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A template in a sequence, with the identity of the buffers behind its lanes.

    Attributes:
        lane_keys: per lane, what tells its buffers from others' (0: the main lane's, else a
            cohort).
    """

    template: ProgramTemplate
    lane_keys: tuple[int, ...]


@dataclass(slots=True)
class _Access:
    queue: Queue
    position: int
    clock: Clock
    what: str
    layer: int


@dataclass(slots=True)
class _State:
    base: Clock = field(default_factory=dict[Queue, int])
    tail: dict[Queue, Clock] = field(default_factory=dict[Queue, Clock])
    writers: dict[_Key, _Access] = field(default_factory=dict[_Key, _Access])
    readers: dict[_Key, list[_Access]] = field(default_factory=dict[_Key, list[_Access]])
    at: dict[tuple[Queue, int], Clock] = field(default_factory=dict[tuple[Queue, int], Clock])
    cohort_attend: dict[int, Clock] = field(default_factory=dict[int, Clock])


def validate(template: ProgramTemplate) -> None:
    """Check one template on its own, its cohorts' attention assumed to be under way.

    Raises:
        ProgramError: names the operations and the buffer.
    """
    validate_sequence([Placed(template, _own_keys(template))])


def _own_keys(template: ProgramTemplate) -> tuple[int, ...]:
    """Lanes of one cohort share its buffers."""
    keys: list[int] = []
    for lane, shape in enumerate(template.lanes):
        keys.append(lane if shape.after is None else keys[shape.after])
    return tuple(keys)


def validate_sequence(programs: Sequence[Placed]) -> None:
    """Check programs submitted one after another, including hazards between them.

    Raises:
        ProgramError: as `validate`.
    """
    state = _State()
    for index, placed in enumerate(programs):
        _check_structure(placed.template)
        for op in placed.template.ops:
            _check_op(state, placed, op, index)
        for queue, count in placed.template.counts:
            state.base[queue] = state.base.get(queue, 0) + count


def _check_structure(template: ProgramTemplate) -> None:
    seen: dict[Queue, int] = {}
    for op in template.ops:
        expected = seen.get(op.queue, 0) + 1
        if op.ordinal != expected:
            raise ProgramError(f"{_name(op)}: ordinal {op.ordinal}, expected {expected}")
        for wait in op.waits:
            if wait.ordinal > seen.get(wait.queue, 0):
                raise ProgramError(f"{_name(op)} waits for {wait}, which nothing before it raises")
        if any(lane >= len(template.lanes) for lane in op.lanes):
            raise ProgramError(f"{_name(op)} names a lane that the template lacks")
        seen[op.queue] = expected
    if dict(template.counts) != seen:
        raise ProgramError(f"{template.name}: counts {dict(template.counts)} but operations {seen}")


def _check_op(state: _State, placed: Placed, op: ProgramOp, index: int) -> None:
    position = state.base.get(op.queue, 0) + op.ordinal
    clock = dict(state.tail.get(op.queue, {}))
    for wait in op.waits:
        _join(clock, state.at.get((wait.queue, state.base.get(wait.queue, 0) + wait.ordinal), {}))
    if op.joins is not None:
        _join(clock, state.cohort_attend.get(placed.lane_keys[op.joins], {}))
    access = _Access(op.queue, position, clock, _name(op), op.layer)
    for ref in (*op.reads, *op.writes):
        _check_reach(op, ref)
    for ref in op.reads:
        _check_read(state, placed, op, ref, _key(placed, ref, index), access)
    for ref in op.writes:
        _check_write(state, op, _key(placed, ref, index), access)
    done = {**clock, op.queue: position}
    state.tail[op.queue] = done
    state.at[(op.queue, position)] = done
    if op.raises is not None:
        state.cohort_attend[placed.lane_keys[op.raises]] = done


def _check_reach(op: ProgramOp, ref: BufferRef) -> None:
    unreachable = Queue.ACCEL if ref.name in _IN_HOST_MEMORY else Queue.CPU
    if op.queue is unreachable:
        raise ProgramError(f"{_name(op)} touches {ref.name}, which {op.queue} cannot reach")


def _check_read(
    state: _State, placed: Placed, op: ProgramOp, ref: BufferRef, key: _Key, access: _Access
) -> None:
    writer = state.writers.get(key)
    if writer is None and not _is_input(placed, op, ref):
        raise ProgramError(f"{access.what} reads {key}, which nothing wrote")
    if writer is not None and not _before(writer, access):
        raise ProgramError(f"{access.what} may read {key} before {writer.what} wrote it")
    if writer is not None and ref.name in _PER_LAYER and writer.layer != op.layer:
        raise ProgramError(f"{access.what} reads {key} as {writer.what} left it")
    state.readers.setdefault(key, []).append(access)


def _check_write(state: _State, op: ProgramOp, key: _Key, access: _Access) -> None:
    if op.part is Part.PAGES:
        return
    earlier = list(state.readers.get(key, ()))
    if key in state.writers:
        earlier.append(state.writers[key])
    for other in earlier:
        if other is not access and not _before(other, access):
            raise ProgramError(f"{access.what} may overwrite {key} while {other.what} uses it")
    state.writers[key] = access
    state.readers[key] = []


def _is_input(placed: Placed, op: ProgramOp, ref: BufferRef) -> bool:
    """Buffers that may hold something from before the sequence."""
    if ref.name in _ALWAYS_DEFINED or ref.name.startswith("pages."):
        return True
    if ref.name == LOGITS and op.kind is OpKind.SAMPLE:
        return True
    if ref.name not in _CARRIED or placed.template.lanes[ref.lane].cursor is None:
        return False
    return ref.name != HOST_PARTIAL or op.joins == ref.lane


def _key(placed: Placed, ref: BufferRef, index: int) -> _Key:
    owner = -1 if ref.lane < 0 else placed.lane_keys[ref.lane]
    scope = index if ref.name in _PROGRAM_LOCAL else -1
    return (ref.name, owner, ref.layer, scope)


def _before(earlier: _Access, later: _Access) -> bool:
    same_queue = earlier.queue is later.queue and earlier.position < later.position
    return same_queue or later.clock.get(earlier.queue, 0) >= earlier.position


def _join(clock: Clock, other: Clock) -> None:
    for queue, value in other.items():
        clock[queue] = max(clock.get(queue, 0), value)


def _name(op: ProgramOp) -> str:
    part = "" if op.part is Part.NONE else f".{op.part.value}"
    return (
        f"{op.kind.value}{part}@{op.queue.value}#{op.ordinal}(layer {op.layer}, lanes {op.lanes})"
    )
