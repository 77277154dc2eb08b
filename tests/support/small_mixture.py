"""A mixture of experts that engines in tests serve: its configuration, and what must be counted."""

from pathlib import Path
from typing import Any

from tests.support.four_requests import PROMPTS
from tests.unit.models.configs import QWEN3_30B_A3B, write

from tandem.engine.stats import EngineStats
from tandem.spec.config import EngineConfig

_MODEL = QWEN3_30B_A3B | {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 6,
    "mlp_only_layers": [0, 3],
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}


def small_mixture(directory: Path, **changes: Any) -> EngineConfig:
    """An engine for it on the host alone, unless `changes` say otherwise."""
    config: dict[str, Any] = {
        "load_format": "dummy",
        "dtype": "float32",
        "accelerator": "none",
        "cpu_memory": "256MiB",
        "block_size": 16,
        "max_model_len": 200,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
    }
    return EngineConfig(str(write(directory, _MODEL)), **(config | changes))


def check_hits(stats: EngineStats) -> None:
    """Every token of every request was computed once, and went to four experts of a layer."""
    computed = sum(len(prompt) + 11 for prompt in PROMPTS)
    sums = [sum(layer) for layer in stats.expert_hits]
    assert [bool(count) for count in sums] == [False, True, True, False, True, True]
    # Launch-ahead may compute a token beyond an end.
    assert all(4 * computed <= count <= 4 * (computed + 4) for count in sums if count)


def check_weights(stats: EngineStats, *places: str) -> None:
    """Weights lie in these places, in as many bytes as predicted, and no device has grown."""
    rows = [row for row in stats.memory if row.label == "weights"]
    assert {row.location for row in rows} == set(places)
    assert all(row.actual_bytes == row.predicted_bytes for row in rows)
    devices = [each for each in stats.memory_totals if each.location == "device"]
    assert all(device.grown_bytes == 0 for device in devices)
