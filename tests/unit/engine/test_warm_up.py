"""The largest step, and the prediction of what it takes."""

import torch

from tandem.engine.warm_up import run_largest_step
from tandem.memory.page import KVPageSpec
from tandem.memory.workspace import workspace_bytes
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.model import Model
from tandem.models.weights import allocate_weights
from tandem.runtime.assemble import MachineSizes, on_exact_emulator
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec, RopeSpec

SPEC = ModelSpec(
    architecture="llama",
    vocab_size=300,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=64,
    max_positions=256,
    rope=RopeSpec(),
    dtype=DType.FLOAT32,
)


def test_the_largest_step_runs_and_stays_within_the_predicted_workspace() -> None:
    config = EngineConfig("m", max_num_seqs=5, max_num_batched_tokens=100, block_size=16)
    weights = allocate_weights(SPEC, torch.float32, torch.device("cpu"))
    fill_dummy_weights(weights, SPEC, 0, None)
    page = KVPageSpec.of_model(SPEC, dtype=DType.FLOAT32, block_size=16)
    blocks = config.max_num_seqs + page.blocks_for_tokens(config.max_num_batched_tokens)
    predicted = workspace_bytes(SPEC, DType.FLOAT32, 100, config.max_num_seqs)
    sizes = MachineSizes(page, blocks, 0, config.max_num_seqs, workspace_bytes=predicted)
    assembled = on_exact_emulator(Model(SPEC, weights), sizes, seed=0)
    ended = run_largest_step(assembled.executor, Model(SPEC, weights), config, blocks)
    assert ended == config.max_num_seqs
    assert 0 < assembled.machine.arena.peak_bytes <= predicted
