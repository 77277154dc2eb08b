"""What the host's part of a step takes beside what `--cpu-memory` bounds."""

import pytest
from tests.support.engines import tiny_model

from tandem.engine.sizing.host_overheads import staging_overheads
from tandem.memory.scratch import PINNED_BYTES, PINNED_LAYERS_BYTES
from tandem.memory.workspace import LargestStep
from tandem.plan.sweep_layers import SweepChoice, SweepLayers
from tandem.spec.dtype import DType


@pytest.mark.parametrize(
    ("sweeps", "pinned_bytes"),
    [
        (SweepChoice(), PINNED_BYTES),
        (SweepChoice(SweepLayers(on_cpu=(1,))), PINNED_BYTES + PINNED_LAYERS_BYTES),
        (SweepChoice(SweepLayers(mlp_on_cpu=(1,))), PINNED_BYTES + PINNED_LAYERS_BYTES),
        (
            SweepChoice(rules=((4, SweepLayers(on_cpu=(1,))),)),
            PINNED_BYTES + PINNED_LAYERS_BYTES,
        ),
    ],
    ids=["attention alone", "layers", "MLPs", "layers in small steps"],
)
def test_on_a_gpu_staging_has_pinned_memory_for_what_the_cpu_computes(
    sweeps: SweepChoice, pinned_bytes: int
) -> None:
    def staging(device_type: str) -> int:
        step = LargestStep(64, 8, device_type=device_type)
        return staging_overheads(tiny_model().spec, DType.BFLOAT16, step, sweeps)["staging"]

    assert staging("cuda") - staging("cpu") == pinned_bytes
