"""The emulated accelerator as probes see it: times of its truth, waited for by a clock."""

from collections.abc import Callable, Mapping, Sequence

from tandem.cost.stage import CostBreakdown, copy_cost, cost_of
from tandem.devices.native_wait import sharpen_timers
from tandem.plan.program import Queue
from tandem.probes.timing import Sample
from tandem.runtime.paced.executor import PacedClock, RealClock
from tandem.runtime.paced.perturbed_rates import Perturbation, PerturbedRates
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec

_PRODUCTS = 4  # submitted at once, so that launching is hidden


class PacedAccelerator:
    """See `ProbedAccelerator`. Used by the thread that made it.

    Pageable memory is as fast as pinned: descriptions do not tell them apart.

    Args:
        clock: a virtual one makes probing take no time (tests); by default real.
    """

    def __init__(
        self, hardware: HardwareSpec, change: Perturbation, clock: PacedClock | None = None
    ) -> None:
        facts = hardware.accelerator
        self.name = f"paced emulator of {hardware.name}"
        self.memory_bytes = facts.memory_bytes
        self._launch_s, self._change = facts.launch_latency_s, change
        self._rates = {dtype: PerturbedRates(hardware, dtype, change) for dtype in DType}
        self._any = self._rates[DType.FLOAT32]
        self._clock = clock or RealClock()
        sharpen_timers()

    def copying(self, size_bytes: int) -> Sample:
        """Within its memory."""
        return self._sample(lambda: self._kernel_s(2 * size_bytes))

    def kernels(self, count: int) -> Sample:
        """Each takes its overhead."""
        return self._sample(lambda: sum(self._kernel_s(0) for _ in range(count)))

    def products(self, dtype: DType, side: int, rows: Sequence[int]) -> Mapping[int, Sample]:
        """By turns with several weights, of which no cache is modelled."""
        return {count: self._product(dtype, side, count) for count in rows}

    def crossings(
        self, sizes: Sequence[int], *, to_device: bool, pinned: bool
    ) -> Mapping[int, Sample]:
        """One direction of the link."""
        queue = Queue.H2D if to_device else Queue.D2H
        return {size: self._sample(lambda n=size: self._copy_s(queue, n)) for size in sizes}

    def crossing_both(self, size_bytes: int) -> Sample:
        """The directions do not share anything."""
        queues = (Queue.H2D, Queue.D2H)
        return self._sample(lambda: max(self._copy_s(queue, size_bytes) for queue in queues))

    def close(self) -> None:
        """Free what waiting needs."""
        self._clock.close()

    def _product(self, dtype: DType, side: int, rows: int) -> Sample:
        true, elements = self._rates[dtype], side * side + 2 * rows * side
        flops = 2.0 * side * side * self._change.whole_tiles(rows)
        cost = cost_of(flops, elements * dtype.size_bytes, 1, true.device)
        sample = self._sample(lambda: sum(true.duration_s(cost) for _ in range(_PRODUCTS)))
        return lambda i: sample(i) / _PRODUCTS

    def _kernel_s(self, size_bytes: float) -> float:
        return self._any.duration_s(cost_of(0, size_bytes, 1, self._any.device))

    def _copy_s(self, queue: Queue, size_bytes: int) -> float:
        cost: CostBreakdown = copy_cost(size_bytes, self._any.links[queue])
        return self._any.duration_s(cost)

    def _sample(self, duration_s: Callable[[], float]) -> Sample:
        def sample(_: int) -> float:
            begin_s = self._clock.now()
            self._clock.wait(begin_s + self._launch_s + duration_s())
            return self._clock.now() - begin_s

        return sample
