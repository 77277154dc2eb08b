"""The paced emulator's layers and MLPs on the CPU, for real."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.fakes.paced import TINY

from tandem.cost.expert_use import ExpertUse
from tandem.kernels.open_pool import open_pool
from tandem.models.layer_state import LayerState
from tandem.plan.block_shape import BlockShape
from tandem.plan.block_template import block_template
from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sweep_template
from tandem.plan.weights import StreamedLayers
from tandem.runtime.paced.choices import PacedChoices
from tandem.runtime.paced.host_layers import PacedHostLayers
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec

SPEC = replace(TINY, num_layers=3)
SPECS = {"dense": SPEC, "experts": replace(SPEC, experts=ExpertSpec(16, 2, 32))}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("on_cpu", [(), (1,)], ids=["mlps", "and-a-layer"])
def test_every_operation_of_a_sweep_is_computed(
    compiled: bool, spec: ModelSpec, on_cpu: tuple[int, ...]
) -> None:
    pool = open_pool() if compiled else None
    layers = PacedHostLayers(spec, DType.FLOAT32, 3, 1 << 16, pool, seed=1, mlps_only=not on_cpu)
    mlps = tuple(layer for layer in range(3) if layer not in on_cpu)
    sweep = sweep_template(3, (LaneShape(),), SweepLayers(on_cpu=on_cpu, mlp_on_cpu=mlps))
    ran = [op for op in sweep.ops if op.queue is Queue.CPU]
    for op in ran:
        layers.run(op, 40, 1)
    assert sum(op.part is Part.MLP for op in ran) == len(mlps)
    if spec.experts is not None and on_cpu:  # nor do those of one token always go to the same
        with torch.inference_mode():  # as they were counted
            layers._layers.expert_hits.counts.zero_()
        for _ in range(16):
            for op in ran:
                layers.run(op, 1, 1)
        assert int(torch.count_nonzero(layers._layers.expert_hits.counts)) > 3 * 2
    if spec.experts is not None and not on_cpu:  # tokens differ, and so do their experts
        hits = layers._layers.expert_hits.counts
        assert int(hits.sum()) == 40 * 2 * len(mlps)
        assert int(torch.count_nonzero(hits)) > 2 * len(mlps)


COUNTS = [[50, 0, 3, 40, 5, 1, 0, 1]] * 3
MIXTURE = ExpertSpec(8, 2, 32)


@pytest.mark.parametrize("resident", [(), (0, 3), (0, 1, 2, 3, 5, 6, 7)], ids=len)
def test_tokens_go_to_experts_as_often_as_they_are_used(resident: tuple[int, ...]) -> None:
    use = ExpertUse.of_counts(COUNTS, replace(SPEC, experts=MIXTURE))
    choices = PacedChoices(MIXTURE, {1: resident} if resident else {}, use, seed=3)
    state = LayerState(torch.zeros(2000, dtype=torch.int64), torch.zeros(2000, 4))
    choices.route(1, state)
    assert state.experts is not None
    assert all(len(set(row)) == 2 or resident for row in state.experts.tolist())
    found = np.bincount(state.experts.flatten(), minlength=8) / 2000
    shares = np.asarray(use.shares[1])
    if not resident:
        np.testing.assert_allclose(found, shares, atol=0.03)
        return
    # the accelerator's take the place of the last, and the others move up
    left = [i for i in range(8) if i not in resident]
    np.testing.assert_allclose(found[: len(left)], shares[left], atol=0.03)
    np.testing.assert_allclose(found[-1], shares[list(resident)].sum(), atol=0.03)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
def test_the_cpu_computes_only_its_own_experts(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(SPEC, experts=MIXTURE)
    use = ExpertUse.of_counts(COUNTS, spec)
    choices = PacedChoices(MIXTURE, {0: (0, 3), 2: (4,)}, use, seed=3)
    pool = open_pool() if compiled else None
    layers = PacedHostLayers(
        spec, DType.FLOAT32, 3, 1 << 16, pool, seed=1, mlps_only=True, choices=choices
    )
    split: list[int] = []
    run = layers._split.mlp
    monkeypatch.setattr(layers._split, "mlp", lambda n, s: (split.append(n), run(n, s)))
    sweep = sweep_template(3, (LaneShape(),), SweepLayers(mlp_on_cpu=(0, 1, 2), split_mlps=(0, 2)))
    for op in sweep.ops:
        if op.queue is Queue.CPU:
            layers.run(op, 40, 1)
    assert len(split) == 2
    assert not layers._split.expert_hits.counts.any()  # the accelerator has routed


CALLS = {
    Part.PRE: "pre", Part.POST: "post", Part.OUTPUT: "output", Part.COLUMNS: "columns",
    Part.RESIDUAL: "add_branch",
}  # fmt: skip


def ops_of(batches: int, *, cut: bool) -> list[ProgramOp]:
    """The CPU's stages and merges of a pass in which it computes layers, or parts of them."""
    streamed = StreamedLayers(tuple(range(6)))
    shape = BlockShape(6, batches, streamed, resident=True, cpu=True)
    if cut:
        shape = replace(shape, columns_on_cpu=True, attention_maps_on_cpu=True)
    else:
        shape = replace(shape, layers_on_cpu=(2, 3))
    ops = [op for op in block_template(shape).ops if op.queue is Queue.CPU]
    return [op for op in ops if op.kind in (OpKind.STAGE, OpKind.MERGE)]


def paced(*, compiled: bool, cut: bool) -> PacedHostLayers:
    pool = open_pool() if compiled else None
    columns = SPEC.intermediate_size // 2 if cut else 0
    return PacedHostLayers(
        SPEC, DType.FLOAT32, 3, 1 << 16, pool, 1, columns=columns, attention_maps=cut
    )


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "whole"])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_every_batch_of_a_block_is_computed(
    batches: int, cut: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All begin a layer before the first of them goes on after attention."""
    layers, ops = paced(compiled=compiled, cut=cut), ops_of(batches, cut=cut)
    ran: list[tuple[str, int]] = []

    def told(name: str) -> None:
        run = getattr(layers._layers, name)

        def call(*given: object) -> None:
            state = given[-1]
            assert isinstance(state, LayerState)
            ran.append((name, state.num_tokens))
            run(*given)

        monkeypatch.setattr(layers._layers, name, call)

    for name in CALLS.values():
        told(name)
    stages = [op for op in ops if op.kind is OpKind.STAGE]
    assert len({op.lanes for op in stages}) == batches
    for _ in range(2):
        for op in ops:
            layers.run(op, 4 + op.lanes[0], 2)  # another number of tokens in each
    assert ran == [(CALLS[op.part], 4 + op.lanes[0]) for op in stages] * 2
    assert len(ran) == 2 * batches * (3 * 6 + 5 if cut else 2 * 2)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "whole"])
def test_what_lacks_a_stage_before_is_refused(cut: bool, compiled: bool) -> None:
    layers, ops = paced(compiled=compiled, cut=cut), ops_of(1, cut=cut)
    begins, merges, goes_on = ops[:3]
    for op in (merges, goes_on):
        with pytest.raises(ValueError, match=f"lane 0 has not begun layer {op.layer}"):
            layers.run(op, 4, 2)
    layers.run(begins, 4, 2)
    with pytest.raises(ValueError, match="'attention'"):
        layers.run(goes_on, 4, 2)
