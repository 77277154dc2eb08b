"""The paced emulator's layers and MLPs on the CPU, for real."""

from dataclasses import replace

import pytest
import torch
from tests.fakes.paced import TINY

from tandem.kernels.open_pool import open_pool
from tandem.plan.program import LaneShape, Part, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sweep_template
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
    if spec.experts is not None and not on_cpu:  # tokens differ, and so do their experts
        hits = layers._layers.expert_hits.counts
        assert int(hits.sum()) == 40 * 2 * len(mlps)
        assert int(torch.count_nonzero(hits)) > 2 * len(mlps)
