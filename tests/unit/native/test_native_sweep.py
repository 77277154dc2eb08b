"""The host's part of a whole step as one native work."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from tandem.kernels import native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape
from tandem.plan.binding import TierAttention

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import CompiledKernels, SplitBatch
from tandem.kernels.native_pool import NativePool, Signal

HEADS, SHAPE, WINDOWS, ROWS = 4, PageShape(2, 4, 8), (0, 3, 0), 3
BASE = 2**32 - 2  # the counters go round within the step
WAIT_S = 20
ATTENTION = TierAttention(
    token_index=None,
    query_start=np.arange(ROWS + 1, dtype=np.int32),
    num_decode=ROWS,
    positions=np.array([2, 6, 9], np.int32),
    block_table=np.array([[4, 0, 0], [1, 3, 0], [2, 6, 5]], np.int32),
    block_index=None,
)
SLOTS = torch.tensor([4 * 4 + 2, 3 * 4 + 2, 5 * 4 + 1])
LAYER_PLANS = [0, 1, 0]


@dataclass
class Part:
    """Memory of the host's part, and what makes its work."""

    kernels: CompiledKernels = field(
        default_factory=lambda: CompiledKernels(NativePool(2), HEADS, SHAPE, 0.3)
    )
    pages: Tensor = field(default_factory=lambda: torch.randn(3, 7, 2, 2, 4, 8))
    q: Tensor = field(default_factory=lambda: torch.zeros(ROWS, HEADS, 8))
    k: Tensor = field(default_factory=lambda: torch.zeros(ROWS, 2, 8))
    v: Tensor = field(default_factory=lambda: torch.zeros(ROWS, 2, 8))
    out: Tensor = field(default_factory=lambda: torch.zeros(ROWS, HEADS, 8))
    lse: Tensor = field(default_factory=lambda: torch.zeros(ROWS, HEADS))
    down: Signal = field(default_factory=lambda: Signal(BASE))
    up: Signal = field(default_factory=lambda: Signal(BASE))

    def batches(self) -> list[SplitBatch]:
        return [self.kernels.plan(ATTENTION, window) for window in (0, 3)]

    def sweep(
        self,
        slots: Tensor | None = SLOTS,
        layer_plans: list[int] = LAYER_PLANS,
        batches: list[SplitBatch] | None = None,
    ) -> _native.Sweep:
        result = AttentionOutput(self.out, self.lse)
        given = self.q, self.k, self.v, slots, self.pages
        return self.kernels.sweep(*given, batches or self.batches(), layer_plans, result)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("puts", [True, False], ids=["keys come", "no keys"])
def test_layers_in_turn_give_what_each_gives_alone(puts: bool) -> None:
    part, then = Part(), Signal()
    rows = torch.randn(len(WINDOWS), ROWS, HEADS + 2 + 2, 8)
    pages = part.pages.clone()
    work = part.sweep(SLOTS if puts else None)
    work.submit(part.down, part.up, BASE, (), (then, 1))
    for layer, row in enumerate(rows):
        q, k, v = row.split((HEADS, 2, 2), dim=1)
        for target, source in ((part.q, q), (part.k, k), (part.v, v)):
            target.copy_(source)
        part.down.set((BASE + layer + 1) % 2**32)
        assert part.up.wait((BASE + layer + 1) % 2**32, WAIT_S)
        if puts:
            part.kernels.append(pages[layer], k, v, SLOTS)
        batch = part.batches()[LAYER_PLANS[layer]]
        expected = part.kernels.attend(q.contiguous(), pages[layer], batch)
        assert torch.equal(part.out, expected.out)
        assert torch.equal(part.lse, expected.lse)
    assert then.wait(1, WAIT_S)
    assert work.wait(WAIT_S)
    assert torch.equal(part.pages, pages)
    spans = work.spans_ns
    assert len(spans) == (2 if puts else 1) * len(WINDOWS)
    moments = [moment for span in spans for moment in span]
    assert moments == sorted(moments)
    assert moments[0] > 0


@pytest.mark.timeout(60)
def test_what_never_gets_its_rows_is_taken_back() -> None:
    part, then = Part(), Signal()
    work = part.sweep()
    work.submit(part.down, part.up, BASE, (), (then, 1))
    assert not work.wait(0.001)
    work.cancel()
    with pytest.raises(RuntimeError, match="cancelled before it began"):
        work.wait()
    assert part.up.value == BASE
    assert then.value == 0


def test_what_does_not_fit_is_refused() -> None:
    part = Part()
    with pytest.raises(ValueError, match="slot"):
        part.sweep(torch.tensor([0, 1, 7 * 4]))
    with pytest.raises(ValueError, match="names a plan that is not there"):
        part.sweep(layer_plans=[0, 2, 0])
    with pytest.raises(ValueError, match="needs layers"):
        part.sweep(layer_plans=[])
    with pytest.raises(ValueError, match=r"pages .* \[2, "):
        part.sweep(layer_plans=[0, 1])
    others = CompiledKernels(NativePool(1), HEADS, PageShape(4, 4, 8), 0.3)
    batches = [part.batches()[0], others.plan(ATTENTION, 3)]
    with pytest.raises(ValueError, match="for different pages"):
        part.sweep(batches=batches)
    part.q = part.q[:2]
    with pytest.raises(ValueError, match="at least 3 tokens"):
        part.sweep()
    part = Part()
    work = part.sweep()
    with pytest.raises(ValueError, match="never ends"):
        work.wait()
    part.down.set((BASE + 3) % 2**32)
    work.submit(part.down, part.up, BASE)
    with pytest.raises(ValueError, match="runs once"):
        work.submit(part.down, part.up, BASE)
    assert work.wait(WAIT_S)
