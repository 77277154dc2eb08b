"""What transformers is given to run as well as it can."""

from pathlib import Path

import pytest
import torch
from benchmarks.gpu.jobs import Asked
from benchmarks.gpu.peer import ContinuousBatching

from tandem.spec.dtype import DType


@pytest.mark.parametrize(
    ("kv_tokens", "blocks", "step_tokens"), [(100_000, 390, 2048), (3000, 11, 1500), (300, 1, 256)]
)
def test_a_step_is_of_fewer_tokens_than_the_cache_holds(
    kv_tokens: int, blocks: int, step_tokens: int
) -> None:
    """Left to itself it fills the device's memory with a step's tokens beside a small cache."""
    job = [Asked((1, 2), 3)]
    device = torch.device("cpu")
    peer = ContinuousBatching(Path("none"), device, DType.FLOAT16, kv_tokens, 2048, job)
    assert (peer._settings.num_blocks, peer._settings.max_batch_tokens) == (blocks, step_tokens)
