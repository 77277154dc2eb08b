"""The emulated accelerator as probes see it: times of its truth, waited for by a clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tandem.cost.quantized import PreciseStage, gpu_kernels
from tandem.cost.recoding import dequantized_cost, quantized_cost
from tandem.cost.stage import CostBreakdown, copy_cost, cost_of
from tandem.devices.native_wait import sharpen_timers
from tandem.plan.program import Queue
from tandem.probes.kernel_cases import HeadShape, PageProbe
from tandem.probes.kernel_pages import code_shape
from tandem.probes.linear_cases import WeightKind
from tandem.probes.timing import Sample
from tandem.runtime.paced.executor import PacedClock, RealClock
from tandem.runtime.paced.perturbed_rates import Perturbation, PerturbedRates
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.kv_type import CodeType, KVType
from tandem.spec.operations import Buffer, Operation, WeightShape
from tandem.spec.precision import Precision

_CALLS = 16  # submitted at once, so that launching is hidden
_FP32_BYTES, _HALF_BYTES = 4, 2
_Pair = tuple[int, int]


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
        self._facts = facts
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

    def products(self, kind: WeightKind, side: int, rows: Sequence[int]) -> Mapping[int, Sample]:
        """By turns with several weights, of which no cache is modelled."""
        return {count: self._product(kind, side, count) for count in rows}

    def coding(self, kind: WeightKind, side: int) -> tuple[Sample, Sample]:
        """One form is read and the other written."""
        assert kind.format is not None
        return self._coding(side * side * _HALF_BYTES + kind.format.size_bytes(side, side))

    def decoding(self, pages: PageProbe, sizes: Sequence[_Pair]) -> Mapping[_Pair, Sample]:
        """Every row's keys and values are read."""
        heads, kv = pages.heads, pages.kv
        return {
            (rows, context): self._attention(heads, kv, rows, rows * context, rows * context)
            for rows, context in sizes
        }

    def reading_prompts(self, pages: PageProbe, sizes: Sequence[_Pair]) -> Mapping[_Pair, Sample]:
        """Each token sees those before it."""
        heads, kv = pages.heads, pages.kv
        return {
            (prompts, tokens): self._attention(
                heads, kv, prompts * tokens, prompts * tokens * (tokens + 1) // 2, prompts * tokens
            )
            for prompts, tokens in sizes
        }

    def coding_pages(self, pages: PageProbe, tokens: int) -> tuple[Sample, Sample]:
        """One form is read and the other written."""
        heads, kv = pages.heads, pages.kv
        return self._coding(tokens * (heads.key_elements * _HALF_BYTES + _token_bytes(heads, kv)))

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

    def _product(self, kind: WeightKind, side: int, rows: int) -> Sample:
        dtype = DType.FLOAT16 if kind.dtype is None else DType(str(kind))
        precision = Precision.uniform(dtype)
        if kind.format is not None:
            precision = replace(precision, quantized={"w": kind.format})
        stage = PreciseStage([_map(side)], precision, gpu_kernels(self._facts, dtype))
        true = self._rates[dtype]
        cost = stage.cost(rows, true.device)
        tiled = stage.cost(self._change.whole_tiles(rows), true.device)
        cost = cost._replace(compute_s=tiled.compute_s)
        return self._repeated(lambda: true.duration_s(cost))

    def _attention(
        self, heads: HeadShape, kv: KVType, tokens: int, pairs: int, keys: int
    ) -> Sample:
        true = self._rates[kv if isinstance(kv, DType) else DType.FLOAT16]
        results = tokens * heads.heads * heads.head_dim * _FP32_BYTES
        size = keys * _token_bytes(heads, kv) + results
        cost = cost_of(pairs * heads.pair_flops, size, 1, true.device)
        return self._repeated(lambda: true.duration_s(cost))

    def _coding(self, size_bytes: float) -> tuple[Sample, Sample]:
        """To codes, and back: bytes that are read and written."""
        true = self._any
        return (
            self._repeated(lambda: true.duration_s(quantized_cost(size_bytes, true.device))),
            self._repeated(lambda: true.duration_s(dequantized_cost(size_bytes, true.device))),
        )

    def _repeated(self, duration_s: Callable[[], float]) -> Sample:
        """The mean of several calls, launched at once."""
        sample = self._sample(lambda: sum(duration_s() for _ in range(_CALLS)))
        return lambda i: sample(i) / _CALLS

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


def _map(side: int) -> Operation:
    """A product with a square weight."""
    x, y = Buffer("x", side), Buffer("y", side)
    return Operation(
        "W", "linear", (WeightShape("w.weight", (side, side)),), (x,), (y,), 2 * side**2
    )


def _token_bytes(heads: HeadShape, kv: KVType) -> float:
    """Of one token's keys and values in pages."""
    if isinstance(kv, CodeType):
        page = code_shape(heads, kv)
        return page.quantized.page_bytes / page.block_size
    return heads.key_elements * kv.size_bytes
