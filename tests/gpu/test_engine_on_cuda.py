"""The engine on a CUDA device gives the host's tokens, on every strategy and placement."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

from tandem.engine.building.build import build_engine_core
from tandem.engine.core import EngineCore
from tandem.engine.stats import EngineStats
from tandem.plan.decode_sweep import row_buckets
from tandem.runtime.graph_logits import GraphLogits
from tandem.runtime.hybrid_graphs import HybridGraphs
from tandem.runtime.hybrid_inputs import HybridArrays
from tandem.spec.config import EngineConfig
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 512,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
}
_MIXTURE = _MODEL | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 128,
    "norm_topk_prob": True,
}
_PROMPT_LENGTHS = (3, 17, 64, 200, 90, 5)
_NEW_TOKENS = 24
_MOST_ROWS = 8
_BUCKETS = ", ".join(map(str, row_buckets(_MOST_ROWS)))


def _config(directory: str, model: Mapping[str, object] = _MODEL) -> EngineConfig:
    (Path(directory) / "config.json").write_text(json.dumps(model))
    return EngineConfig(
        model=directory,
        load_format="dummy",
        dtype="float32",
        cpu_memory="256MiB",
        max_num_seqs=_MOST_ROWS,
        max_num_batched_tokens=128,
        block_size=16,
    )


@contextmanager
def _refusing_to_wait() -> Iterator[None]:
    """Within, torch raises an error where an operation waits for the device: who asks for a number
    that lies there, or for a copy without saying that it need not have come.
    """
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _run(
    core: EngineCore, guard: Callable[[], AbstractContextManager[object]] = nullcontext
) -> tuple[dict[str, list[int]], EngineStats]:
    """Tokens by request; what is read at the end, a mixture's counts, may ask the device.

    Args:
        guard: around all steps.
    """
    for i, length in enumerate(_PROMPT_LENGTHS):
        prompt = tuple((7 * i + 13 * j) % 512 for j in range(length))
        params = SamplingParams(max_tokens=_NEW_TOKENS, temperature=0.0 if i % 2 else 0.7, seed=i)
        core.add_request(EngineRequest(str(i), prompt, params))
    tokens: dict[str, list[int]] = {str(i): [] for i in range(len(_PROMPT_LENGTHS))}
    with guard():
        while core.has_work():
            for output in core.step():
                tokens[output.request_id] += output.token_ids
    stats = core.stats()
    core.close()
    assert all(tier.held_blocks == 0 for tier in stats.tiers), stats.tiers
    return tokens, stats


def _compare(
    model: Mapping[str, object] = _MODEL, quantization: str = "auto", **changes: object
) -> EngineStats:
    """Run on the host and on CUDA with `changes`; the tokens must be the same."""
    with tempfile.TemporaryDirectory() as directory:
        base = replace(_config(directory, model), quantization=quantization)
        expected, _ = _run(build_engine_core(replace(base, accelerator="none"), check=True))
        config = replace(base, **changes)
        tokens, stats = _run(build_engine_core(replace(config, accelerator="cuda"), check=True))
    assert tokens == expected
    assert all(len(ids) == _NEW_TOKENS for ids in tokens.values())
    return stats


def test_device_only_matches_host() -> None:
    stats = _compare(strategy="gpu-only", gpu_memory="256MiB")
    assert stats.host_attention_tokens == 0


def test_plain_loop_matches_host() -> None:
    _compare(strategy="gpu-only", gpu_memory="256MiB", overlap=False)


def test_steps_do_not_wait_for_the_device() -> None:
    """Tokens are read behind an event; operations are launched one by one, as the first steps of
    all kinds are.
    """
    for model, changes in (
        (_MODEL, {"strategy": "gpu-only"}),
        (_MODEL, {"kv_placement": "split"}),
        (_MODEL, {"strategy": "rendezvous", "kv_placement": "split"}),
        (_MIXTURE, {"strategy": "gpu-only"}),
    ):
        with tempfile.TemporaryDirectory() as directory:
            config = replace(
                _config(directory, model), accelerator="cuda", gpu_memory="512MiB",
                cuda_graphs="off", **changes,
            )  # fmt: skip
            core = build_engine_core(config, check=True)
            tokens, _ = _run(core, _refusing_to_wait)
        assert all(len(ids) == _NEW_TOKENS for ids in tokens.values()), changes


def test_graphs_match_operations_and_host() -> None:
    """Greedy and sampled, by graphs of one to eight rows; `on` refuses what cannot be."""
    stats = _compare(strategy="gpu-only", gpu_memory="512MiB", cuda_graphs="on")
    (note,) = [note for note in stats.notes if "graphs of" in note]
    assert f"graphs of {_BUCKETS} rows" in note
    assert "no more" not in note, note
    rows = {row.label: row for row in stats.memory}
    graphs = rows["CUDA graphs"]
    assert graphs.actual_bytes is not None
    assert 0 < graphs.actual_bytes <= graphs.predicted_bytes
    off = _compare(strategy="gpu-only", gpu_memory="512MiB", cuda_graphs="off")
    assert not [note for note in off.notes if "graphs of" in note]


def test_layers_of_hybrid_steps_as_graphs_match_host() -> None:
    """Rows in both tiers, and cohorts that come and go."""
    for strategy in ("ride-along", "rendezvous"):
        stats = _compare(
            strategy=strategy, kv_placement="split", gpu_memory="512MiB", cuda_graphs="on"
        )
        assert stats.host_attention_tokens > 0
        (note,) = [note for note in stats.notes if note.startswith("layers of hybrid steps")]
        assert f"graphs of {_BUCKETS} tokens" in note
        assert "no more" not in note, note


def test_decoding_with_the_host_as_one_graph_matches_host() -> None:
    """Kernels raise and look at counters in host memory while the CPU's threads attend: rows on the
    host alone, in both tiers, and with a part in each.
    """
    launched: list[int] = []
    run = HybridGraphs.run

    def counted(graphs: HybridGraphs, arrays: HybridArrays) -> GraphLogits:
        launched.append(len(arrays.link.rows))
        return run(graphs, arrays)

    with patch.object(HybridGraphs, "run", counted):
        for placement in ("host", "split"):
            stats = _compare(
                strategy="ride-along", kv_placement=placement, gpu_memory="512MiB",
                cuda_graphs="on",
            )  # fmt: skip
            told = [note for note in stats.notes if note.startswith("decoding of which the host")]
            assert "is by graphs of" in told[0], told
            assert launched, placement
            launched.clear()


def test_layers_that_stay_as_graphs_match_host() -> None:
    """Beside them others come, or the CPU computes them, or their MLPs."""
    for home, strategy in (
        ("streamed", "gpu-only"),
        ("streamed", "rendezvous"),
        ("cpu", "ride-along"),
        ("cpu-mlp", "ride-along"),
    ):
        with tempfile.TemporaryDirectory() as directory:
            placement = Path(directory) / "placement.json"
            placement.write_text(
                json.dumps({"layers": [{"first_layer": 1, "last_layer": 1, "home": home}]})
            )
            stats = _compare(
                strategy=strategy, kv_placement="auto" if strategy == "gpu-only" else "split",
                gpu_memory="512MiB", cuda_graphs="on", placement=str(placement),
            )  # fmt: skip
        (note,) = [note for note in stats.notes if "graphs of" in note]
        assert note.startswith("layers that stay on the accelerator, beside those")
        assert "no more" not in note, note
        graphs = {row.label: row for row in stats.memory}["CUDA graphs"]
        assert graphs.actual_bytes is not None
        assert graphs.actual_bytes <= graphs.predicted_bytes


def test_mixtures_as_graphs_match_host() -> None:
    """Nothing asks the host which experts were chosen: then they could not be recorded."""
    for quantization in ("auto", "int4"):
        stats = _compare(
            _MIXTURE, quantization, strategy="gpu-only", gpu_memory="512MiB", cuda_graphs="on"
        )
        (note,) = [note for note in stats.notes if "graphs of" in note]
        assert f"graphs of {_BUCKETS} rows" in note
        assert "no more" not in note, note


def test_forced_host_attention_matches_host() -> None:
    stats = _compare(kv_placement="host", gpu_memory="256MiB")
    assert stats.host_attention_tokens > 0
    assert stats.device_attention_tokens == 0


def test_split_kv_matches_host() -> None:
    stats = _compare(kv_placement="split", gpu_memory="256MiB")
    assert stats.host_attention_tokens > 0
    assert stats.device_attention_tokens > 0


def test_embeddings_in_host_memory_match_host() -> None:
    with tempfile.TemporaryDirectory() as directory:
        placement = Path(directory) / "placement.json"
        placement.write_text('{"layers": [], "embedding": "host"}')
        stats = _compare(gpu_memory="256MiB", placement=str(placement))
    rows = {(row.location, row.label): row.actual_bytes for row in stats.memory}
    assert rows["host", "weights"] == 512 * 256 * 4


def test_cohorts_match_host() -> None:
    stats = _compare(strategy="rendezvous", kv_placement="split", gpu_memory="256MiB")
    assert stats.cohort_joins > 0


def test_half_precision_runs_to_the_end() -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = replace(
            _config(directory), dtype="bfloat16", accelerator="cuda", kv_placement="split"
        )
        tokens, stats = _run(build_engine_core(config, check=True))
    assert all(len(ids) == _NEW_TOKENS for ids in tokens.values())
    assert stats.dtype == "bfloat16"


def test_streams_that_wait_match_host() -> None:
    for strategy in ("ride-along", "rendezvous"):
        stats = _compare(
            strategy=strategy, kv_placement="split", gpu_memory="256MiB", link_waits="stream"
        )
        assert stats.host_attention_tokens > 0


def test_workspace_was_measured() -> None:
    stats = _compare(strategy="gpu-only", gpu_memory="256MiB")
    labels = {row.label: row for row in stats.memory}
    assert labels["workspace"].predicted_bytes > 0
    assert labels["workspace"].actual_bytes
    assert stats.peak_device_bytes > labels["weights"].predicted_bytes
    device = next(totals for totals in stats.memory_totals if totals.location == "device")
    assert device.grown_bytes is not None
