"""Dummy weights: reproducible from the config alone, with activations of a sane scale."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.parity.dense_attention import forward
from tests.unit.models.configs import (
    GEMMA2_9B,
    GEMMA3_4B,
    LLAMA,
    MISTRAL_7B,
    OPT,
    PHI3_MINI,
    QWEN2_7B,
    QWEN3,
    write,
)

from tandem.models.dummy_weights import _TILE_GROUPS, fill_dummy_weights
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.models.weights import allocate_weights
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec, RopeSpec
from tandem.spec.parameters import weight_bytes
from tandem.spec.weight_format import WeightFormat

SPEC = ModelSpec("llama", 512, 128, 24, 4, 2, 32, 256, 1024, rope=RopeSpec())


def dummy(spec: ModelSpec, seed: int = 0, dtype: torch.dtype = torch.float32) -> Model:
    weights = allocate_weights(spec, dtype, torch.device("cpu"))
    fill_dummy_weights(weights, spec, seed)
    return Model(spec, weights)


def snapshot(model: Model) -> dict[tuple[int | None, str], torch.Tensor]:
    return {(p.layer, p.name): p.tensor.clone() for p in model.weights.parameters()}


def test_the_same_seed_gives_the_same_weights_and_another_one_others() -> None:
    first, again, other = (
        snapshot(dummy(SPEC)),
        snapshot(dummy(SPEC)),
        snapshot(dummy(SPEC, seed=1)),
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first[0, "q.weight"], other[0, "q.weight"])
    assert not torch.equal(first[0, "q.weight"], first[1, "q.weight"])


def test_values_do_not_depend_on_what_else_the_model_holds() -> None:
    shorter = ModelSpec("llama", 512, 128, 24, 4, 2, 32, 256, 1024, rope=RopeSpec(), mlp_bias=True)
    assert torch.equal(
        snapshot(dummy(SPEC))[5, "gate.weight"], snapshot(dummy(shorter))[5, "gate.weight"]
    )


def test_half_precision_holds_the_same_values_rounded() -> None:
    whole, half = snapshot(dummy(SPEC)), snapshot(dummy(SPEC, dtype=torch.bfloat16))
    assert all(torch.equal(whole[key].bfloat16(), half[key]) for key in whole)


def test_rows_of_a_tensor_longer_than_the_tile_differ() -> None:
    model = dummy(ModelSpec("llama", 20_000, 64, 1, 4, 2, 16, 64, 64, rope=RopeSpec()))
    embedding = model.weights.outer["embedding"].weight
    assert embedding.numel() > 4 * 262_139
    assert len(torch.unique(embedding, dim=0)) == len(embedding)


@pytest.mark.parametrize("kind", ["llama", "opt", "gemma3"])
def test_activations_neither_vanish_nor_explode(kind: str) -> None:
    spec = SPEC
    if kind == "opt":
        spec = ModelSpec(
            "opt", 512, 128, 24, 4, 4, 32, 512, 1024, norm="layer", activation="relu", gated=False,
            qkv_bias=True, output_bias=True, mlp_bias=True, position_offset=2, tie_embeddings=True,
        )  # fmt: skip
    if kind == "gemma3":
        spec = replace(
            SPEC, norm_offset=1.0, post_norms=True, qk_norm=True, embedding_scale=128**0.5
        )
    logits = forward(dummy(spec), torch.arange(40) * 7 % 512)
    assert torch.isfinite(logits).all()
    assert 0.3 < float(logits.std()) < 3.0


@pytest.mark.parametrize(
    "config",
    [LLAMA, QWEN3, OPT, MISTRAL_7B, QWEN2_7B, PHI3_MINI, GEMMA2_9B, GEMMA3_4B],
    ids=lambda config: config["architectures"][0],
)
def test_a_config_alone_is_enough(config: dict[str, object], tmp_path: Path) -> None:
    narrow = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 100,
    }
    sizes = {"intermediate_size": 80, "ffn_dim": 80, "word_embed_proj_dim": 64}
    shortened = config | narrow | sizes | {"num_hidden_layers": 2, "max_position_embeddings": 64}
    done: list[int] = []
    model = load_model(
        write(tmp_path, shortened),
        DType.FLOAT32,
        load_format="dummy",
        progress=lambda bytes_done, total, name: done.append(bytes_done),
    )
    assert done[-1] == model.weights.size_bytes == weight_bytes(model.spec, DType.FLOAT32)
    assert torch.isfinite(forward(model, torch.arange(20))).all()


@pytest.mark.parametrize("format", [WeightFormat(4, 128), WeightFormat(8, 32)], ids=str)
def test_a_large_quantized_matrix_repeats_rounded_groups(format: WeightFormat) -> None:
    wide = replace(SPEC, hidden_size=1024, intermediate_size=1024, num_layers=1)
    weights = allocate_weights(
        wide, torch.float32, torch.device("cpu"), quantized={"down": format, "output": format}
    )
    fill_dummy_weights(weights, wide, 0)
    kept = weights.layers[0]["down"].quantized
    assert kept is not None
    values = kept.dequantize().view(-1, format.group)
    count = _TILE_GROUPS[format.group]
    assert len(values) > 2 * count
    assert torch.equal(values[count:], values[: len(values) - count])
    assert len(values[:count].unique(dim=0)) == count
    rows = kept.dequantize()[:100]
    assert len(rows.unique(dim=0)) == 100
    deviation = 1 / (1024 * 2) ** 0.5
    assert float(values.std()) == pytest.approx(deviation, rel=0.05)
