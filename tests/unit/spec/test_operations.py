"""Operation lists: names, costs and cuts."""

from dataclasses import replace

import pytest

from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec
from tandem.spec.operations import Stage, default_stages, live_buffers
from tandem.spec.parameters import (
    embedding_parameters,
    head_parameters,
    kv_bytes_per_token,
    layer_matrix_parameters,
    layer_parameters,
    layers_matrix_parameters,
    layers_parameters,
    num_parameters,
    read_layers_parameters,
    weight_bytes,
)

LLAMA_31_8B = ModelSpec(
    "llama", 128256, 4096, 32, 32, 8, 128, 14336, 131072, rope=RopeSpec(500000.0)
)
LLAMA_32_1B = ModelSpec(
    "llama", 128256, 2048, 16, 32, 8, 64, 8192, 131072, rope=RopeSpec(), tie_embeddings=True
)
QWEN3_06B = ModelSpec(
    "qwen3", 151936, 1024, 28, 16, 8, 128, 3072, 40960,
    qk_norm=True, rope=RopeSpec(1e6), tie_embeddings=True,
)  # fmt: skip
OPT_125M = ModelSpec(
    "opt", 50272, 768, 12, 12, 12, 64, 3072, 2048, norm="layer", activation="relu", gated=False,
    qkv_bias=True, output_bias=True, mlp_bias=True, position_offset=2, tie_embeddings=True,
)  # fmt: skip
GEMMA_3_1B = ModelSpec(
    "gemma3", 262144, 1152, 26, 4, 1, 256, 6912, 32768,
    post_norms=True, norm_offset=1.0, qk_norm=True, tie_embeddings=True,
    windows=tuple(0 if layer % 6 == 5 else 512 for layer in range(26)),
    rope=RopeSpec(1e6), local_rope=RopeSpec(1e4),
)  # fmt: skip
QWEN3_30B_A3B = ModelSpec(
    "qwen3_moe", 151936, 2048, 48, 32, 4, 128, 6144, 40960,
    qk_norm=True, rope=RopeSpec(1e6), experts=ExpertSpec(128, 8, 768),
)  # fmt: skip
MIXTRAL_8X7B = ModelSpec(
    "mixtral", 32000, 4096, 32, 32, 8, 128, 14336, 32768,
    rope=RopeSpec(1e6), experts=ExpertSpec(8, 2, 14336),
)  # fmt: skip
ALL = [MIXTRAL_8X7B, QWEN3_30B_A3B, GEMMA_3_1B, LLAMA_31_8B, LLAMA_32_1B, QWEN3_06B, OPT_125M]


def names(spec: ModelSpec) -> str:
    return " ".join(op.name for op in layer_operations(spec))


def test_names_and_order() -> None:
    attention = "Scores Softmax WV Output LN.1"
    assert names(LLAMA_31_8B) == f"LN.0 Q K V Rope {attention} FC.gate FC.up FC.act FC.down"
    assert names(QWEN3_06B) == (
        f"LN.0 Q K V QNorm KNorm Rope {attention} FC.gate FC.up FC.act FC.down"
    )
    assert names(GEMMA_3_1B) == (
        "LN.0 Q K V QNorm KNorm Rope Scores Softmax WV Output LN.Output LN.1"
        " FC.gate FC.up FC.act FC.down LN.FC"
    )
    assert names(QWEN3_30B_A3B) == (
        f"LN.0 Q K V QNorm KNorm Rope {attention} Router"
        " Experts.gate Experts.up Experts.act Experts.down"
    )
    assert names(OPT_125M) == f"LN.0 Q K V {attention} FC.0 FC.act FC.1"


@pytest.mark.parametrize(
    ("spec", "published"),
    [
        (LLAMA_31_8B, 8_030_261_248),
        (LLAMA_32_1B, 1_235_814_400),
        (QWEN3_06B, 596_049_920),
        (OPT_125M, 125_239_296),
        (GEMMA_3_1B, 999_885_952),
        (QWEN3_30B_A3B, 30_532_122_624),
        (MIXTRAL_8X7B, 46_702_792_704),
    ],
)
def test_parameter_counts_are_the_published_ones(spec: ModelSpec, published: int) -> None:
    parts = embedding_parameters(spec) + head_parameters(spec)
    assert num_parameters(spec) == published == parts + spec.num_layers * layer_parameters(spec)
    assert weight_bytes(spec, DType.BFLOAT16) == 2 * published


@pytest.mark.parametrize("spec", ALL)
def test_linear_flops_are_two_per_weight_and_token(spec: ModelSpec) -> None:
    for op in layer_operations(spec):
        if op.kind == "linear":
            matrix = op.weights[0].elements
            per_token = op.flops(10) / 10
            # Beyond the product: at most a bias and a residual addition per output.
            assert 0 <= per_token - 2 * matrix <= 2 * op.weights[0].shape[0]


@pytest.mark.parametrize(("spec", "published"), [(QWEN3_30B_A3B, 3.3e9), (MIXTRAL_8X7B, 12.9e9)])
def test_a_token_needs_its_own_experts_only(spec: ModelSpec, published: float) -> None:
    assert spec.experts is not None
    own = replace(spec, experts=replace(spec.experts, count=spec.experts.per_token))
    routers = spec.num_layers * (spec.experts.count - spec.experts.per_token) * spec.hidden_size
    active = read_layers_parameters(spec, 1)
    assert active == pytest.approx(read_layers_parameters(own, 1) + routers)
    outside = embedding_parameters(spec) + head_parameters(spec)
    assert active + outside == pytest.approx(published, rel=0.02)
    products = sum(
        op.flops(1) for op in layer_operations(spec) if op.kind in ("linear", "expert_linear")
    )
    # what is read beside linear maps: norms and the router
    assert products * spec.num_layers == pytest.approx(2 * active, rel=0.01)


def test_experts_are_read_once_however_many_tokens_go_to_them() -> None:
    down = layer_operations(QWEN3_30B_A3B)[-1]
    one, two, many = (down.read_weight_elements(tokens) for tokens in (1, 2, 4096))
    per_expert = 2048 * 768
    assert one == pytest.approx(8 * per_expert)
    assert two == pytest.approx((8 + 8 * (1 - 8 / 128)) * per_expert)  # some go to the same one
    assert many == pytest.approx(128 * per_expert)
    assert many <= down.weight_elements == 128 * per_expert
    assert down.flops(2) == 2 * down.flops(1)


def test_layers_without_experts_have_a_list_of_their_own() -> None:
    spec = replace(QWEN3_30B_A3B, experts=ExpertSpec(128, 8, 768, dense_layers=(0, 2)))
    assert spec.distinct_layers == (0, 1)
    dense, routed = layer_operations(spec), layer_operations(spec, 1)
    assert layer_operations(spec, 2) == dense == layer_operations(replace(spec, experts=None))
    everywhere = layer_operations(QWEN3_30B_A3B)
    assert [(op.name, op.weights) for op in routed] == [(op.name, op.weights) for op in everywhere]
    fewer = 2 * (layer_parameters(spec, 1) - layer_parameters(spec, 0))
    assert num_parameters(QWEN3_30B_A3B) - num_parameters(spec) == fewer


def test_attention_flops_grow_with_the_context_and_the_rest_does_not() -> None:
    for op in layer_operations(LLAMA_31_8B):
        at_one, at_two = op.flops(4, 1000), op.flops(4, 2000)
        assert at_two == (2 * at_one if op.is_attention else at_one)
    scores = next(op for op in layer_operations(LLAMA_31_8B) if op.name == "Scores")
    assert scores.flops(1, 1) == 2 * 4096 + 32


@pytest.mark.parametrize("dense", [(), (0, 2), (5,)])
def test_layers_of_a_kind_are_counted_once_and_all(dense: tuple[int, ...]) -> None:
    spec = replace(QWEN3_30B_A3B, num_layers=6, experts=ExpertSpec(128, 8, 768, dense_layers=dense))
    assert layers_parameters(spec) == sum(layer_parameters(spec, i) for i in range(6))
    assert layers_matrix_parameters(spec) == sum(layer_matrix_parameters(spec, i) for i in range(6))


@pytest.mark.parametrize("spec", ALL)
def test_kv_cache_traffic(spec: ModelSpec) -> None:
    operations = layer_operations(spec)
    written = sum(op.kv_write_elements(5) for op in operations) * spec.num_layers
    assert written * 2 == 5 * kv_bytes_per_token(spec, DType.BFLOAT16)
    assert sum(op.kv_read_elements(7) for op in operations) == 7 * 2 * spec.kv_size


@pytest.mark.parametrize("spec", ALL)
def test_default_stages_partition_the_layer(spec: ModelSpec) -> None:
    operations = layer_operations(spec)
    pre, attend, post = default_stages(operations)
    assert pre.of(operations) + attend.of(operations) + post.of(operations) == operations
    assert all(op.is_attention for op in attend.of(operations))
    assert not any(op.is_attention for op in pre.of(operations) + post.of(operations))
    assert operations[post.start].name == "Output"


def live_names(spec: ModelSpec, before: str) -> list[str]:
    operations = layer_operations(spec)
    cut = next(i for i, op in enumerate(operations) if op.name == before)
    return [buffer.name for buffer in live_buffers(operations, cut)]


def test_what_is_live_at_a_cut() -> None:
    assert live_names(LLAMA_31_8B, "LN.0") == ["residual"]
    assert live_names(LLAMA_31_8B, "K") == ["residual", "x", "q"]
    assert live_names(LLAMA_31_8B, "Rope") == ["residual", "q", "k", "v"]
    assert live_names(LLAMA_31_8B, "Scores") == ["residual", "q", "k", "v"]
    assert live_names(LLAMA_31_8B, "Output") == ["residual", "attention"]
    assert live_names(LLAMA_31_8B, "LN.1") == ["residual"]
    assert live_names(LLAMA_31_8B, "FC.up") == ["residual", "x", "gate"]
    assert live_names(LLAMA_31_8B, "FC.down") == ["residual", "mlp"]
    assert live_names(MIXTRAL_8X7B, "Router") == ["residual", "x"]
    chosen = ["experts", "expert_weights"]
    assert live_names(MIXTRAL_8X7B, "Experts.gate") == ["residual", "x", *chosen]
    assert live_names(MIXTRAL_8X7B, "Experts.act") == ["residual", *chosen, "gate", "up"]
    assert live_names(MIXTRAL_8X7B, "Experts.down") == ["residual", *chosen, "mlp"]
    assert live_names(OPT_125M, "FC.act") == ["residual", "mlp"]


def test_attention_cannot_be_suspended() -> None:
    operations = layer_operations(LLAMA_31_8B)
    attend = default_stages(operations).attend
    for cut in (attend.start + 1, attend.end - 1, -1, len(operations) + 1):
        with pytest.raises(ValueError, match="not a suspension point"):
            live_buffers(operations, cut)


def test_a_stage_cannot_end_before_it_starts() -> None:
    with pytest.raises(ValueError, match="stage bounds"):
        Stage(3, 2)
