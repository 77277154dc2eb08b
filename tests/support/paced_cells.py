"""Cells of the online bench in virtual time: a scripted host, and a profile that knows it."""

from dataclasses import dataclass, replace

from tests.support.profiles import MACHINE, profile

from tandem.bench.online.bed import VIRTUAL, Bed
from tandem.bench.online.cell import OnlineCell
from tandem.bench.online.plans import Planned, ask, plan_policies
from tandem.bench.online.window import Window, steady_run
from tandem.plan.program import OpKind
from tandem.planner.question import Question
from tandem.probes.accelerator import measure_accelerator
from tandem.probes.effort import coarse
from tandem.profiling.measurements import (
    AttentionTimes,
    Contention,
    HostMeasurements,
    LinearTimes,
    MemoryRates,
)
from tandem.profiling.surface import Curve, Surface
from tandem.runtime.paced.costs import PacedLane
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.probed import PacedAccelerator
from tandem.runtime.paced.shared_memory import emulated_contention
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier

ATTENTION_BYTES_PER_S, READ_BYTES_PER_S, FLOPS_PER_S = 12e9, 14e9, 50e9
START_S = 5e-6
_HALF = 2
_ROWS, _CONTEXTS = (1.0, 64.0), (64.0, 1536.0)
_ELEMENTS, _TOKENS = (1e6, 16e6), (1.0, 8.0, 64.0, 512.0)


@dataclass(frozen=True)
class VirtualCell:
    """A cell, and what a profile of it knows."""

    cell: OnlineCell
    bed: Bed

    @property
    def question(self) -> Question:
        """That the profile makes."""
        return self.bed.question

    def planned(self, *policies: str) -> tuple[Planned, ...]:
        """Their plans."""
        return plan_policies(self.question, policies)

    def executed(self, planned: Planned) -> Window:
        """One window in virtual time."""
        run = steady_run(self.cell, self.bed, planned, 1.0)
        try:
            return run.measure()
        finally:
            run.close()


def virtual_cell(cell: OnlineCell) -> VirtualCell:
    """The accelerator probed, the host told."""
    accelerator = measure_accelerator(
        PacedAccelerator(cell.hardware, cell.truth, VirtualClock()), coarse()
    )
    assert accelerator.h2d is not None
    found = replace(
        profile(),
        machine=replace(MACHINE, accelerator="emulated"),
        host=_host(cell, accelerator.h2d.pinned),
        accelerator=accelerator,
    )
    workload, host_bytes = cell.load.workload(), cell.hardware.host.memory_bytes
    question = ask(found, cell.model, workload, host_bytes, cell.max_num_batched_tokens)

    def pool() -> VirtualPool:
        return VirtualPool(lambda task: _host_s(cell.model, task))

    bed = Bed(VIRTUAL, question, READ_BYTES_PER_S, (0,), 1 << 16, VirtualClock, pool)
    return VirtualCell(cell, bed)


def _key_bytes(model: ModelSpec) -> int:
    return 2 * model.kv_size * _HALF


def _attention_s(model: ModelSpec, keys: float) -> float:
    return START_S + keys * _key_bytes(model) / ATTENTION_BYTES_PER_S


def _linear_s(elements: float, tokens: float) -> float:
    return max(elements * _HALF / READ_BYTES_PER_S, 2 * elements * tokens / FLOPS_PER_S)


def _contention(cell: OnlineCell, pinned: Curve) -> Contention:
    """Of attention beside the link, as it will be emulated."""
    link = pinned.sizes[-1] / pinned.seconds[-1]
    alone = ATTENTION_BYTES_PER_S
    found = Contention("attention", "link", "memory", "link", alone, alone, link, link)
    return emulated_contention(found, cell.hardware.host.pool_bytes_per_s)


def _host(cell: OnlineCell, pinned: Curve) -> HostMeasurements:
    model = cell.model
    attention = tuple(tuple(_attention_s(model, r * c) for c in _CONTEXTS) for r in _ROWS)
    linear = tuple(tuple(_linear_s(e, t) for t in _TOKENS) for e in _ELEMENTS)
    surface = Surface(_ROWS, _CONTEXTS, attention)
    return replace(
        profile().host,
        memory=MemoryRates(READ_BYTES_PER_S, 10e9, 8e9),
        linear=(LinearTimes("float16", Surface(_ELEMENTS, _TOKENS, linear)),),
        attention=(AttentionTimes("float16", 2 * model.kv_size, surface),),
        contention=(_contention(cell, pinned),),
    )


def _host_s(model: ModelSpec, task: HostTask) -> float:
    op, program = task.entry.op, task.entry.program
    if op.kind is OpKind.APPEND:
        return START_S
    assert op.kind is OpKind.ATTEND, "layers on the CPU are not scripted"
    keys = 0
    for number in program.active(op):
        lane = program.lanes[number]
        assert isinstance(lane, PacedLane)
        keys += lane.work.attention(Tier.HOST, op.layer).keys
    return _attention_s(model, keys)
