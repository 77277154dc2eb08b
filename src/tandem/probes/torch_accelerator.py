"""An accelerator that torch drives, as probes see it.

What a step launches is recorded, where the device can, and submitted at once: launching a kernel of
ours takes Python longer than a GPU most of them, and is a cost of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from tandem.probes.card_attention import UNCACHED_BYTES, CardAttention, Sizes
from tandem.probes.kernel_cases import PageProbe
from tandem.probes.linear_cases import MatrixShape, WeightKind, make_copies
from tandem.probes.probe_device import ProbeDevice
from tandem.probes.recorded_calls import RecordedCalls
from tandem.probes.timing import Sample, timed
from tandem.probes.walked_memory import WalkedMemory
from tandem.quant.quantize import quantize_into
from tandem.quant.quantized_weight import QuantizedWeight

_COPIES, _MOST_COPIES = 4, 64  # more of small ones take less time to read than to submit
_CALLS = 16  # submitted at once
_Weight = TypeVar("_Weight")


@dataclass(frozen=True, slots=True)
class CodeMaths:
    """What models do with weights in few bits (`models/linear.py`).

    Attributes:
        multiply: `x @ weight.T`. dequantize: every element, in a type.
    """

    multiply: Callable[[QuantizedWeight, Tensor], Tensor]
    dequantize: Callable[[QuantizedWeight, torch.dtype], Tensor]


class TorchAccelerator:
    """See `ProbedAccelerator`."""

    def __init__(self, probed: ProbeDevice, codes: CodeMaths) -> None:
        self._probed, self._maths = probed, codes
        self.name, self.memory_bytes = probed.name, probed.memory_bytes

    def copying(self, size_bytes: int) -> Sample:
        """Within its memory."""
        source = torch.ones(size_bytes, dtype=torch.uint8, device=self._probed.device)
        target = torch.zeros_like(source)
        return self._ended(lambda: target.copy_(source))

    def kernels(self, count: int) -> Sample:
        """Additions to one element."""
        tiny = torch.zeros(1, device=self._probed.device)
        return self._ended(lambda: tiny.add_(1), count)

    def products(self, kind: WeightKind, side: int, rows: Sequence[int]) -> Mapping[int, Sample]:
        """By turns with several weights."""
        if kind.format is not None:
            weights, multiply = self._codes(kind, side), self._maths.multiply
            inputs = {n: self._inputs(n, side, torch.float16) for n in rows}
            return {
                n: self._by_turns(weights, lambda w, x=x: multiply(w, x)) for n, x in inputs.items()
            }
        assert kind.dtype is not None
        count = _copies(kind, side)
        floats = [self._inputs(side, side, kind.dtype) for _ in range(count)]
        inputs = {n: self._inputs(n, side, kind.dtype) for n in rows}
        return {n: self._by_turns(floats, lambda w, x=x: torch.mm(x, w)) for n, x in inputs.items()}

    def coding(self, kind: WeightKind, side: int) -> tuple[Sample, Sample]:
        """As weights of 16 bits are quantized, and as before products of many rows."""
        weights, dequantize = self._codes(kind, side), self._maths.dequantize
        plain = torch.randn(side, side, device=self._probed.device).half()
        return (
            self._ended(lambda: quantize_into(weights[0], plain)),
            self._by_turns(weights, lambda weight: dequantize(weight, torch.float16)),
        )

    def decoding(self, pages: PageProbe, sizes: Sizes) -> Mapping[tuple[int, int], Sample]:
        """Shuffled pages, each call another layer."""
        return self._attention(pages).decoding(sizes)

    def reading_prompts(self, pages: PageProbe, sizes: Sizes) -> Mapping[tuple[int, int], Sample]:
        """Shuffled pages."""
        return self._attention(pages).reading_prompts(sizes)

    def coding_pages(self, pages: PageProbe, tokens: int) -> tuple[Sample, Sample]:
        """By the kernels of steps."""
        return self._attention(pages).coding(tokens)

    def crossings(
        self, sizes: Sequence[int], *, to_device: bool, pinned: bool
    ) -> Mapping[int, Sample]:
        """Parts of one buffer on each side."""
        largest = max(sizes)
        there = torch.ones(largest, dtype=torch.uint8, device=self._probed.device)
        here = torch.empty(largest, dtype=torch.uint8)
        if pinned:
            here = self._probed.pinned(largest)
        here.fill_(1)
        target, source = (there, here) if to_device else (here, there)
        return {size: self._copy(target[:size], source[:size]) for size in sizes}

    def crossing_both(self, size_bytes: int) -> Sample:
        """Submitted together, on two queues."""
        probed = self._probed
        up, down = probed.pinned(size_bytes).fill_(1), probed.pinned(size_bytes).fill_(1)
        there, back = (
            torch.ones(size_bytes, dtype=torch.uint8, device=probed.device) for _ in range(2)
        )

        def run() -> None:
            there.copy_(up, non_blocking=True)
            with probed.aside():
                down.copy_(back, non_blocking=True)
            probed.synchronize()

        return lambda _: timed(run)

    def _ended(self, call: Callable[[], object], count: int = 1) -> Sample:
        def run() -> None:
            for _ in range(count):
                call()
            self._probed.synchronize()

        return lambda _: timed(run)

    def _copy(self, target: Tensor, source: Tensor) -> Sample:
        return self._ended(lambda: target.copy_(source, non_blocking=True))

    def _attention(self, pages: PageProbe) -> CardAttention:
        return CardAttention(self._probed, pages)

    def _inputs(self, rows: int, side: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(rows, side, device=self._probed.device).to(dtype)

    def _codes(self, kind: WeightKind, side: int) -> list[QuantizedWeight]:
        device, count = self._probed.device, _copies(kind, side)
        (first, *_) = make_copies(MatrixShape(side, side), kind, WalkedMemory(0)).quantized
        return [
            QuantizedWeight(
                first.format,
                first.q.to(device, copy=True),
                first.scales.to(device, copy=True),
                first.zeros.to(device, copy=True),
            )
            for _ in range(count)
        ]

    def _by_turns(self, weights: Sequence[_Weight], call: Callable[[_Weight], object]) -> Sample:
        """The mean of several calls, once each weight in turn: when one comes again, no cache has
        it.
        """
        count = max(_CALLS, len(weights))
        return RecordedCalls(self._probed, [partial(call, weight) for weight in weights], count)


def _copies(kind: WeightKind, side: int) -> int:
    """Square weights of a kind to take turns with."""
    size = kind.size_bytes(MatrixShape(side, side))
    return min(_MOST_COPIES, max(_COPIES, -(-UNCACHED_BYTES // size)))
