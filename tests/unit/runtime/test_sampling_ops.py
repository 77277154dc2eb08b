"""Sampling sends the rows it writes to the accelerator as every other upload, without waiting."""

import torch
from tests.support.engines import tiny_model

from tandem.engine.building.warm_up import run_largest_steps
from tandem.memory.page import KVPageSpec
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.inline import InlineExecutor
from tandem.scheduler.config import SchedulerConfig
from tandem.spec.dtype import DType
from tandem.spec.tier import Tier


def test_row_numbers_go_through_the_machine_s_upload() -> None:
    model = tiny_model()
    page = KVPageSpec.of_model(model.spec, dtype=DType.FLOAT32, block_size=16)
    uploaded: list[torch.Tensor] = []

    def upload(tensor: torch.Tensor) -> torch.Tensor:
        uploaded.append(tensor)
        return tensor.clone()

    machine = build_machine(model, MachineSizes(page, 16, 0, max_rows=3), upload)
    limits = SchedulerConfig(
        num_layers=2, max_model_len=64, block_size=16, max_num_seqs=3, max_num_batched_tokens=12
    )
    blocks = {Tier.DEVICE: 16, Tier.HOST: 0}
    vocab_size = model.spec.vocab_size
    run_largest_steps(InlineExecutor(machine), vocab_size, limits, "gpu-only", blocks)
    # with all KV on the device nothing else is uploaded by operations
    assert all(tensor.dtype == torch.int64 for tensor in uploaded)
    assert {row for tensor in uploaded for row in tensor.tolist()} == {0, 1, 2}
