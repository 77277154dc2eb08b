"""Memory on the way to the CPU and back: of its own, and pinned where a device copies from it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.engines import tiny_model

from tandem.memory.scratch import PINNED_LANE_BYTES
from tandem.plan.binding import LaneBinding, TierAppend, TierAttention
from tandem.runtime.staging import LaneStaging, StagingShape
from tandem.spec.tier import Tier


class Pinned:
    """Gives memory out, and notes how much."""

    def __init__(self) -> None:
        self.blocks: list[torch.Tensor] = []

    def __call__(self, size_bytes: int) -> torch.Tensor:
        self.blocks.append(torch.zeros(size_bytes, dtype=torch.uint8))
        return self.blocks[-1]


def hosted(attending: int, appended: int) -> LaneBinding:
    """A lane with so many tokens that attend, and that append, in the host tier."""
    positions = np.zeros(attending, np.int32)
    none = np.zeros(0, np.int64)
    attention = TierAttention(
        None,
        np.arange(attending + 1, dtype=np.int32),
        attending,
        positions,
        positions[:, None],
        None,
    )
    return LaneBinding(
        positions,
        none,
        none,
        positions,
        {Tier.HOST: attention},
        {Tier.HOST: TierAppend(None, np.zeros(appended, np.int64))},
        none,
    )


def parts(staging: LaneStaging) -> list[torch.Tensor]:
    return [staging.query, staging.key, staging.value, staging.out, staging.lse]


@pytest.mark.parametrize(("attending", "appended"), [(5, 3), (1, 0), (0, 1), (7, 7)])
def test_pinned_parts_lie_side_by_side_in_one_block(attending: int, appended: int) -> None:
    pinned, spec = Pinned(), tiny_model().spec
    shape = StagingShape.of(spec, torch.bfloat16, pinned)
    binding = hosted(attending, appended)
    staging = shape.allocate(binding)
    plain = replace(shape, pinned=None).allocate(binding)
    assert len(pinned.blocks) == 1
    for number, (part, other) in enumerate(zip(parts(staging), parts(plain), strict=True)):
        assert (part.shape, part.dtype) == (other.shape, other.dtype)
        assert part.is_contiguous()
        assert part.numel() == 0 or part.data_ptr() % 64 == pinned.blocks[0].data_ptr() % 64
        part.fill_(number + 1)
    for number, part in enumerate(parts(staging)):
        assert part.eq(number + 1).all()  # none lies in another


def test_large_lanes_do_without() -> None:
    pinned, spec = Pinned(), tiny_model().spec
    shape = StagingShape.of(spec, torch.float32, pinned)
    row_bytes = (2 * spec.q_size + spec.num_heads + 2 * spec.kv_size) * 4
    rows = PINNED_LANE_BYTES // row_bytes
    shape.allocate(hosted(rows + 1, rows + 1))
    assert pinned.blocks == []
    shape.allocate(hosted(rows - 64, rows - 64))
    assert len(pinned.blocks) == 1
    assert pinned.blocks[0].nbytes <= PINNED_LANE_BYTES
