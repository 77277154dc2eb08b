"""Step programs: typed operations on named queues, ordered by signals (contracts 2-4).

A `ProgramTemplate` is the shape of a step and is built once per shape; a `StepProgram` is a
template plus this step's arrays. Each queue runs its operations in order, like a CUDA stream, and
owns a timeline signal that an operation raises to its ordinal when it is done. Other orderings are
waits on such a timeline, so a dependency costs no object per step.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tandem.spec.tier import Tier

if TYPE_CHECKING:  # numpy's arrays, which templates, and so plans, do without
    from tandem.plan.binding import IntArray, LaneBinding, SamplingRows
    from tandem.plan.passing import PassingKV


_KEPT = 1 << 16  # names of buffers, and signals: of templates of any size


class Queue(StrEnum):
    """Where an operation runs. `weights` shares the link with `h2d`, in an order of its own;
    `disk` reads files into host memory.
    """

    ACCEL = "accel"
    H2D = "h2d"
    D2H = "d2h"
    CPU = "cpu"
    WEIGHTS = "weights"
    DISK = "disk"


class OpKind(StrEnum):
    """What an operation does; the list is closed, interpreters handle every kind they are given.

    A SWEEP is all of a sweep's operations on the accelerator, launched as one.
    """

    STAGE = "stage"
    APPEND = "append"
    ATTEND = "attend"
    COPY = "copy"
    MERGE = "merge"
    SAMPLE = "sample"
    LOAD = "load"
    READ = "read"
    SWEEP = "sweep"


class Part(StrEnum):
    """The variant of an operation: which stage, or what is copied. `OUTPUT` and `MLP` are `POST`
    cut in two. Where the accelerator has some of a layer's experts, `ROUTE` is `OUTPUT` and all
    before the experts; `EXPERTS` are the accelerator's, and `MLP` are the CPU's. A LOAD of `MLP`
    brings nothing else, one of `PRE` or `POST` what that stage reads; `KEYS_VALUES` and `QUERIES`
    are `PRE` in two parts. Of a block of batches, `CACHE` are keys and values that cross the link,
    `PREFIX` the activations from which `RECOMPUTE` makes others. `COLUMNS` are either side's share
    of an MLP that both compute at once; a LOAD of it brings all of a layer but the CPU's, one of
    `CPU_COLUMNS` these.
    """

    EMBED = "embed"
    PRE = "pre"
    POST = "post"
    KEYS_VALUES = "keys_values"
    QUERIES = "queries"
    OUTPUT = "output"
    MLP = "mlp"
    COLUMNS = "columns"
    CPU_COLUMNS = "cpu_columns"
    ROUTE = "route"
    EXPERTS = "experts"
    HEAD = "head"
    RESIDUAL = "residual"
    QKV = "qkv"
    PARTIAL = "partial"
    PAGES = "pages"
    CACHE = "cache"
    PREFIX = "prefix"
    RECOMPUTE = "recompute"
    TOKENS = "tokens"
    NONE = "none"


class EventKind(StrEnum):
    """What an operation tells the scheduler when it is done."""

    LANE_DONE = "lane_done"
    LANE_ADVANCED = "lane_advanced"
    TRANSFER_DONE = "transfer_done"
    TOKENS = "tokens"


class BufferRef(NamedTuple):
    """A buffer as the validator sees it. `lane` is an index into the template's lanes (-1: shared);
    `layer` is -1 for buffers that all layers reuse.
    """

    name: str
    lane: int = -1
    layer: int = -1


class SignalRef(NamedTuple):
    """`queue`'s timeline has reached the program's base plus `ordinal`.

    Ordinal 0 means: everything submitted to that queue before this program; -1: all but the last.
    """

    queue: Queue
    ordinal: int


# templates name the same ones again and again, and planning makes hundreds of thousands


@lru_cache(maxsize=_KEPT)
def buffer(name: str, lane: int = -1, layer: int = -1) -> BufferRef:
    """A `BufferRef`, made once."""
    return BufferRef(name, lane, layer)


@lru_cache(maxsize=_KEPT)
def signal(queue: Queue, ordinal: int) -> SignalRef:
    """A `SignalRef`, made once."""
    return SignalRef(queue, ordinal)


class ProgramOp(NamedTuple):
    """One operation of a template; a tuple, since planning makes hundreds of thousands.

    Attributes:
        lanes: lanes it works on, in order; a lane whose guard failed is left out at run time, and
            an operation left without lanes only raises its signal.
        tier: for APPEND and ATTEND, where the KV lies.
        ordinal: its place (from 1) on its queue within this template.
        waits: timeline values that must be reached before it starts.
        joins: lane whose cohort signal it waits for; where that lane is guarded it decides the
            guard.
        raises: lane whose cohort signal it raises: the cohort leaves the sweep with it.
        reads, writes: buffers, for the validator and for poisoning.
        event: what completing it means to the scheduler, if anything.
    """

    kind: OpKind
    queue: Queue
    part: Part
    lanes: tuple[int, ...]
    layer: int
    ordinal: int
    waits: tuple[SignalRef, ...]
    reads: tuple[BufferRef, ...]
    writes: tuple[BufferRef, ...]
    tier: Tier | None = None
    joins: int | None = None
    event: EventKind | None = None
    raises: int | None = None


@dataclass(frozen=True, slots=True)
class LaneShape:
    """What a lane does in a sweep.

    A lane with `cursor is None` enters at the embedding; otherwise its cohort has attention of
    layer `cursor` under way and joins at that layer's POST. A lane with `suspends` leaves after the
    next layer's PRE, its host attention running on (a cohort); the others run to the end of the
    sweep.

    Such a lane may have a pass of its own instead (`beside`): at a layer of the others it joins its
    attention, which is that of another layer, and goes on to its next one. A cohort that advances
    several layers in a sweep has a lane for each.

    Attributes:
        beside: the others' layer after whose attention the pass comes; None: the lane shares the
            stages of its cursor's layer, and of the next.
        after: lane of the same cohort that comes before in this sweep. If that one is left out, or
            one of a sweep before that this one follows, so is this one (`CohortChain`).
        device, host: whether rows of the lane have keys in that tier.
        guarded: the join may fail if the cohort is not ready within `max_join_wait_s`, or did not
            join before; the lane is then left out of this sweep.
        head: whether logits are produced when the lane reaches the last layer.
    """

    cursor: int | None = None
    suspends: bool = False
    device: bool = True
    host: bool = False
    guarded: bool = False
    head: bool = True
    beside: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramTemplate:
    """A validated list of operations in an order that is a topological one.

    Attributes:
        counts: operations per queue: how far the program moves each timeline.
    """

    name: str
    lanes: tuple[LaneShape, ...]
    ops: tuple[ProgramOp, ...]
    counts: tuple[tuple[Queue, int], ...]


class LaneSlot(NamedTuple):
    """This step's filling of one lane.

    Attributes:
        cohort_id: 0 for the main lane (buffers reused every step), else the cohort whose residual
            and staging buffers it uses; batches of a block count as cohorts from 1 on.
        cohort_signal: value of the cohort's signal that a join waits for (attentions completed).
        passing: keys and values that have a slot on the accelerator while a layer lasts.
    """

    binding: "LaneBinding"
    cohort_id: int = 0
    cohort_signal: int = 0
    passing: "PassingKV | None" = None


@dataclass(frozen=True, slots=True)
class PageTransfer:
    """Copy whole KV blocks (all layers) between tiers; phase one of a two-phase move."""

    transfer_id: int
    source: Tier
    target: Tier
    source_blocks: "IntArray"
    target_blocks: "IntArray"


@dataclass(frozen=True, slots=True)
class StepProgram:
    """A template with its slots filled.

    Attributes:
        step_id: monotonic over everything submitted; leases are counted in it.
        lanes: one filling per template lane.
        transfers: payloads of PAGES copies, in the order of those operations.
        sampling: payload of SAMPLE operations, one per template lane (sampling programs, and those
            of blocks, which sample themselves).
        sampling_lanes: for each of those, the lane of the forward program that has the logits.
        forward_step: for sampling programs, the step whose logits and guards they use.
        max_join_wait_s: bound on a guarded join's wait; None waits until it is ready.
    """

    step_id: int
    template: ProgramTemplate
    lanes: tuple[LaneSlot, ...] = ()
    transfers: tuple[PageTransfer, ...] = ()
    sampling: "tuple[SamplingRows, ...]" = ()
    sampling_lanes: tuple[int, ...] = ()
    forward_step: int = 0
    max_join_wait_s: float | None = None
