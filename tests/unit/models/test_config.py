"""Reading `config.json`: real models of each kind, old and new keys, clear refusals."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.models.configs import (
    GEMMA2_9B,
    GEMMA3_4B,
    LLAMA,
    LLAMA3_SCALING,
    MISTRAL_7B,
    MIXTRAL_8X7B,
    OPT,
    PHI3_MINI,
    QWEN2_7B,
    QWEN3,
    QWEN3_30B_A3B,
    write,
)

import tandem
from tandem.models.config import read_model_spec
from tandem.spec.dtype import DType
from tandem.spec.errors import ModelError
from tandem.spec.model import ExpertSpec, RopeSpec

YARN = {"rope_type": "yarn", "factor": 4.0}


def test_llama_31_with_the_keys_of_transformers_4(tmp_path: Path) -> None:
    config = LLAMA | {"rope_scaling": LLAMA3_SCALING | {"rope_type": "llama3"}}
    spec = read_model_spec(write(tmp_path, config, {"eos_token_id": [128001, 128009]}))

    assert (spec.architecture, spec.num_layers, spec.head_dim) == ("llama", 32, 128)
    assert spec.rope == RopeSpec(500000.0, "llama3", 8.0, 1.0, 4.0, 8192)
    assert spec.eos_token_ids == (128001, 128008, 128009)
    assert spec.bos_token_id == 128000
    assert spec.dtype is DType.BFLOAT16
    assert not spec.tie_embeddings


def test_the_keys_of_transformers_5_mean_the_same(tmp_path: Path) -> None:
    old = LLAMA | {"rope_scaling": LLAMA3_SCALING | {"type": "llama3"}}
    new = {k: v for k, v in LLAMA.items() if k not in ("torch_dtype", "rope_theta")}
    new |= {
        "dtype": "bfloat16",
        "rope_parameters": LLAMA3_SCALING | {"rope_type": "llama3", "rope_theta": 500000.0},
    }
    assert read_model_spec(write(tmp_path, old)) == read_model_spec(write(tmp_path, new))


def test_absent_keys_take_the_architectures_defaults(tmp_path: Path) -> None:
    optional = ("num_key_value_heads", "rope_theta", "rms_norm_eps", "torch_dtype", "eos_token_id")
    spec = read_model_spec(write(tmp_path, {k: v for k, v in LLAMA.items() if k not in optional}))
    assert spec.num_kv_heads == spec.num_heads
    assert spec.rope == RopeSpec(theta=10000.0)
    assert (spec.norm_eps, spec.dtype, spec.eos_token_ids) == (1e-6, DType.FLOAT32, ())


def test_qwen3_has_head_norms_and_a_head_dim_of_its_own(tmp_path: Path) -> None:
    spec = read_model_spec(write(tmp_path, QWEN3))
    assert spec.qk_norm
    assert spec.tie_embeddings
    assert (spec.head_dim, spec.q_size, spec.hidden_size) == (128, 2048, 1024)


def test_qwen3_moe_names_its_layers_without_experts(tmp_path: Path) -> None:
    config = QWEN3_30B_A3B | {
        "num_hidden_layers": 6,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
    }
    spec = read_model_spec(write(tmp_path, config))
    assert spec.experts is not None
    assert spec.experts.dense_layers == (0, 2, 3, 4)
    assert [layer for layer in range(6) if spec.routed_experts(layer)] == [1, 5]
    assert spec.distinct_layers == (0, 1)


def test_mixtral_routes_every_layer(tmp_path: Path) -> None:
    spec = read_model_spec(write(tmp_path, MIXTRAL_8X7B))
    assert spec.experts == ExpertSpec(8, 2, 14336)
    assert spec.distinct_layers == (0,)
    assert spec.rope == RopeSpec(theta=1e6)


def test_opt_has_learned_positions_and_layer_norms(tmp_path: Path) -> None:
    spec = read_model_spec(write(tmp_path, OPT))
    assert (spec.position_offset, spec.rope, spec.norm, spec.gated) == (2, None, "layer", False)
    assert spec.tie_embeddings  # OPT's default
    assert spec.qkv_bias
    assert spec.output_bias
    assert spec.mlp_bias


@pytest.mark.parametrize(
    ("config", "change", "named"),
    [
        (LLAMA, {"architectures": ["Qwen2MoeForCausalLM"]}, "Qwen2MoeForCausalLM"),
        (LLAMA, {"architectures": None}, "architectures"),
        (LLAMA, {"hidden_size": None}, "hidden_size"),
        (LLAMA, {"hidden_size": "big"}, "hidden_size"),
        (LLAMA, {"num_hidden_layers": 0}, "num_hidden_layers"),
        (LLAMA, {"num_hidden_layers": True}, "num_hidden_layers"),
        (LLAMA, {"num_key_value_heads": 5}, "key/value heads"),
        (LLAMA, {"num_attention_heads": 31, "num_key_value_heads": 31}, "31 attention heads"),
        (LLAMA, {"head_dim": 33}, "head_dim"),
        (LLAMA, {"hidden_act": "quick_gelu"}, "quick_gelu"),
        (LLAMA, {"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
        (LLAMA, {"rope_scaling": {"rope_type": "proportional"}}, "proportional"),
        (LLAMA, {"rope_scaling": {"type": "linear"}}, "factor"),
        (LLAMA, {"rope_scaling": {"type": "yarn", "factor": "4"}}, "factor"),
        (LLAMA, {"rope_scaling": {"type": "dynamic"}}, "factor"),
        (LLAMA, {"attn_logit_softcapping": 50.0}, "no such cap"),
        (LLAMA, {"use_bidirectional_attention": True}, "causal"),
        (LLAMA, {"rope_scaling": {"rope_type": "llama3"}}, "factor"),
        (LLAMA, {"rope_scaling": "llama3"}, "rope_scaling"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (LLAMA, {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "per layer type"),
        (LLAMA, {"rope_theta": float("nan")}, "rope_theta"),
        (LLAMA, {"num_local_experts": 8}, "num_local_experts"),
        (LLAMA, {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        (LLAMA, {"eos_token_id": "</s>"}, "eos_token_id"),
        (QWEN3, {"layer_types": ["full_attention", "sliding_attention"]}, "each of 28 layers"),
        (QWEN3, {"layer_types": ["sliding_attention"] * 28}, "use_sliding_window"),
        (QWEN3, {"layer_types": ["linear_attention"] * 28}, "linear_attention"),
        (QWEN2_7B, {"use_sliding_window": True, "max_window_layers": -1}, "max_window_layers"),
        (MISTRAL_7B, {"sliding_window": 0}, "sliding_window"),
        (PHI3_MINI, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        (PHI3_MINI, {"rope_scaling": {"type": "longrope"}}, "short_factor"),
        (
            PHI3_MINI,
            {"rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [2.0] * 48}},
            "'short_factor' must hold 48 numbers, not 1",
        ),
        (PHI3_MINI, {"rope_scaling": {"type": "su", "short_factor": ["a"] * 48}}, "short_factor"),
        (PHI3_MINI, {"rope_scaling": {"type": "su", "short_factor": [1.0] * 48}}, "long_factor"),
        (
            PHI3_MINI,
            {"rope_scaling": {"type": "su", "short_factor": [1.0] * 48, "long_factor": [2.0]}},
            "'long_factor' must hold 48 numbers, not 1",
        ),
        (LLAMA, {"head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2}}, "above 2"),
        (PHI3_MINI, {"partial_rotary_factor": 0.75}, "partial_rotary_factor"),
        (GEMMA2_9B, {"sliding_window": None}, "sliding_window"),
        (GEMMA2_9B, {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping"),
        (GEMMA2_9B, {"num_attention_heads": 24}, "24 attention heads"),
        (GEMMA2_9B, {"use_bidirectional_attention": True}, "causal"),
        (GEMMA3_4B, {"attn_logit_softcapping": 50.0}, "no such cap"),
        (GEMMA3_4B, {"rope_scaling": {"rope_type": "longrope"}}, "short_factor"),
        (LLAMA, {"n_shared_experts": 1}, "n_shared_experts"),
        (QWEN3_30B_A3B, {"shared_expert_intermediate_size": 512}, "all tokens share"),
        (QWEN3_30B_A3B, {"num_experts": 0}, "num_experts"),
        (QWEN3_30B_A3B, {"num_experts_per_tok": 129}, "129, but there are 128"),
        (QWEN3_30B_A3B, {"mlp_only_layers": 3}, "mlp_only_layers"),
        (QWEN3_30B_A3B, {"decoder_sparse_step": 49}, "no layer has experts"),
        (MIXTRAL_8X7B, {"num_local_experts": "8"}, "num_local_experts"),
        (MIXTRAL_8X7B, {"num_experts_per_tok": 0}, "num_experts_per_tok"),
        (OPT, {"do_layer_norm_before": False}, "do_layer_norm_before"),
        (OPT, {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        (LLAMA, {"num_hidden_layers": 10**9}, "'num_hidden_layers' must be at most 1000, not 1"),
        (GEMMA3_4B, {"num_hidden_layers": 10**9}, "at most 1000"),
        (OPT, {"num_hidden_layers": 10**9}, "at most 1000"),
        (LLAMA, {"vocab_size": 10**400}, "not a number of 401 digits"),
        (LLAMA, {"rope_theta": 10**400}, "rope_theta"),
        (MIXTRAL_8X7B, {"num_local_experts": 10**9}, "'num_local_experts' must be at most"),
        (QWEN3_30B_A3B, {"num_experts": 10**9}, "'num_experts' must be at most"),
    ],
)
def test_what_is_not_supported_is_named(
    config: dict[str, Any], change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        read_model_spec(write(tmp_path, config | change))
    assert named in caught.value.message
    assert "\n" not in caught.value.message


def test_a_sliding_window_that_no_layer_uses_is_accepted(tmp_path: Path) -> None:
    unused = {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 28}
    assert read_model_spec(write(tmp_path, QWEN3 | unused)).windows == ()
    assert read_model_spec(write(tmp_path, QWEN2_7B)).windows == ()


@pytest.mark.parametrize(
    ("config", "scaling", "positions"),
    [
        # Qwen3's recipe leaves max_position_embeddings as they are, Vicuna 16k as well
        (QWEN3, YARN | {"original_max_position_embeddings": 32768}, 131072),
        (LLAMA | {"max_position_embeddings": 4096}, {"type": "linear", "factor": 4.0}, 16384),
        # what has been raised already is not raised again
        (LLAMA, YARN | {"original_max_position_embeddings": 32768}, 131072),
        (LLAMA, {"type": "linear", "factor": 4, "original_max_position_embeddings": 1024}, 131072),
        (LLAMA, LLAMA3_SCALING | {"rope_type": "llama3"}, 131072),
        (GEMMA3_4B, {"rope_type": "linear", "factor": 8.0}, 131072),
        (GEMMA3_4B, {"rope_type": "dynamic", "factor": 8.0}, 131072),
    ],
)
def test_scaling_by_a_factor_lengthens_what_the_model_was_trained_for(
    config: dict[str, Any], scaling: dict[str, Any], positions: int, tmp_path: Path
) -> None:
    spec = read_model_spec(write(tmp_path, config | {"rope_scaling": scaling}))
    assert spec.max_positions == spec.longest_positions == positions
    assert spec.for_length(positions) is spec.for_length(None) is spec


def test_longrope_rotates_otherwise_for_more_than_it_was_trained_for(tmp_path: Path) -> None:
    factors = {"short_factor": [1.5] * 48, "long_factor": [3.0] * 48}
    longer = {"max_position_embeddings": 131072, "rope_scaling": factors | {"type": "su"}}
    spec = read_model_spec(write(tmp_path, PHI3_MINI | longer))
    assert spec.rope is not None
    assert spec.rope.kind == "longrope"
    assert (spec.max_positions, spec.longest_positions) == (4096, 131072)
    assert spec.for_length(4096) is spec.for_length(131073) is spec
    long = spec.for_length(4097)
    assert (long.max_positions, long.longest_positions) == (4097, 131072)
    assert long.rope is not None
    assert (spec.rope.divisors, long.rope.divisors) == ((1.5,) * 48, (3.0,) * 48)
    assert long.rope.amplitude == spec.rope.amplitude


def test_dynamic_scaling_rotates_otherwise_beyond_the_configuration_s_positions(
    tmp_path: Path,
) -> None:
    scaling = {"rope_scaling": {"type": "dynamic", "factor": 2.5}}
    spec = read_model_spec(write(tmp_path, LLAMA | {"max_position_embeddings": 4096} | scaling))
    assert (spec.max_positions, spec.longest_positions) == (4096, 10240)
    long = spec.for_length(8192)
    assert spec.rope is not None
    assert long.rope is not None
    # factor L / original - (factor - 1) = 3.5, head_dim 128
    assert long.rope.theta == pytest.approx(spec.rope.theta * 3.5 ** (128 / 126))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "JSON object"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"vocab_size": 1' + b"0" * 5000 + b"}", "not valid JSON"),
    ],
    ids=["cut off", "a list", "not UTF-8", "thousands of digits"],
)
def test_a_damaged_config_is_one_clear_line(content: bytes, named: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=named):
        read_model_spec(tmp_path)


def test_not_a_model_directory(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    for path, named in [
        (tmp_path / "absent", "does not exist"),
        (file, "is a file"),
        (tmp_path, "no config.json"),
    ]:
        with pytest.raises(ModelError, match=named):
            read_model_spec(path)


def test_facts_are_read_without_loading_torch(tmp_path: Path) -> None:
    # Commands that only look at a model must start fast.
    write(tmp_path, QWEN3)
    code = (
        "import sys\n"
        "from tandem.models.config import read_model_spec\n"
        "from tandem.models.resolve import resolve_model\n"
        "read_model_spec(resolve_model(sys.argv[1]))\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)\n"
    )
    source = Path(tandem.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, env={"PYTHONPATH": str(source)}
    )
