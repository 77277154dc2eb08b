"""What a cell's plans are made from, and what they are executed on: in real time, or in virtual."""

from collections.abc import Callable
from dataclasses import dataclass

from tandem.bench.online.cell import DTYPE, OnlineCell
from tandem.memory.margin import margin_bytes
from tandem.memory.page import KVPageSpec
from tandem.planner.question import Lengths, Question
from tandem.probes.accelerator import measure_accelerator
from tandem.probes.effort import coarse
from tandem.profiling.hardware import accelerator_facts, link_facts
from tandem.runtime.paced.executor import PacedClock
from tandem.runtime.paced.host_truth import HostTruth
from tandem.runtime.paced.pool import HostPool
from tandem.runtime.paced.probed import PacedAccelerator
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.hardware import HardwareSpec
from tandem.spec.precision import Precision
from tandem.spec.workload import Workload

PACED, VIRTUAL = "paced", "virtual"
_NO_CACHE = 1  # bytes of cache that the host's pages must exceed: they are not read


@dataclass(frozen=True, slots=True)
class Bed:
    """For all plans of a cell.

    Attributes:
        word: of its figures.
        question: all that planning is told.
        read_bytes_per_s: at which the host's cores read at most.
        cores: that attend, if any do.
        cache_bytes: of the host; None asks sysfs.
        clock, pool: of an engine, made for it alone; no pool: threads on the cores.
    """

    word: str
    question: Question
    read_bytes_per_s: float
    cores: tuple[int, ...]
    cache_bytes: int | None
    clock: Callable[[], PacedClock]
    pool: Callable[[], HostPool | None]

    @property
    def virtual(self) -> bool:
        """Whether time is only counted, so that more of it costs little."""
        return self.word == VIRTUAL


def no_pool() -> None:
    """The host really attends, and takes as long as it does."""


def virtual_bed(cell: OnlineCell) -> Bed:
    """In virtual time: accelerator and link are probed as on a real machine; the host's rates are
    told, since a host whose work is only timed cannot be measured.
    """
    probed = PacedAccelerator(cell.hardware, cell.truth, VirtualClock())
    found = measure_accelerator(probed, coarse())
    host = cell.hardware.host
    hardware = HardwareSpec(found.name, accelerator_facts(found), link_facts(found), host)
    question = question_of(cell, hardware, cell.load.workload())
    page = KVPageSpec.of_model(cell.model, dtype=DTYPE, block_size=question.block_size)

    def pool() -> VirtualPool:
        return VirtualPool(HostTruth(cell.model, page, host, cell.truth).duration_s)

    rate = host.memory_bandwidth_bytes_per_s
    return Bed(VIRTUAL, question, rate, (0,), _NO_CACHE, VirtualClock, pool)


def question_of(cell: OnlineCell, hardware: HardwareSpec, workload: Workload) -> Question:
    """The planner's, of a machine whose rates are told."""
    card = hardware.accelerator.memory_bytes
    return Question(
        model=cell.model,
        hardware=hardware,
        precision=Precision.uniform(DTYPE),
        lengths=Lengths.of(workload),
        device_bytes=card - margin_bytes(card),
        host_bytes=hardware.host.memory_bytes,
        max_num_batched_tokens=cell.max_num_batched_tokens,
        step_sizes=cell.step_sizes,
    )
