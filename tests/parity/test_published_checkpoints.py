"""Checkpoints quantized by others: every number is theirs, and greedy tokens are transformers'."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.published_checkpoint import write
from tests.parity.published_formats import PUBLISHED, Published, awq, compressed, fp8, gptq
from tests.parity.quantized_weights import layer_maps
from tests.support.engines import model_engine

from tandem.kernels.open_pool import open_pool
from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_parameters
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.models.weights import Parameter
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

BY_ID = {mode.id: mode for mode in MODES}
KEPT = replace(gptq(4, 128), id="gptq-kept", kept=("o_proj", "down_proj"))


def maps(model: Model, names: Iterator[str]) -> dict[str, Parameter]:
    parameters = checkpoint_parameters(model.weights, load_architecture(model.spec.architecture))
    return {name: parameters[f"{name}.weight"] for name in names}


def held(parameter: Parameter) -> torch.Tensor:
    return parameter.tensor if parameter.quantized is None else parameter.quantized.dequantize()


@pytest.mark.parametrize(
    ("published", "shards"), [(p, 1 + 2 * (i % 2)) for i, p in enumerate((*PUBLISHED, KEPT))]
)
def test_numbers_are_the_checkpoints(published: Published, shards: int, tmp_path: Path) -> None:
    reference = write(tmp_path, published, shards)
    expected = layer_maps(reference)
    for precision in (DType.FLOAT32, Precision.uniform(DType.FLOAT32)):
        found = maps(load_model(tmp_path, precision), iter(expected))
        for name, parameter in found.items():
            assert torch.equal(held(parameter), expected[name]), name
            may_be_few_bits = precision is DType.FLOAT32 and not published.id.startswith("fp8")
            left = name.endswith(published.kept or ("?",))
            assert (parameter.quantized is not None) == (may_be_few_bits and not left)


def test_eight_bit_floating_point_is_rounded_to_the_wanted_type_once(tmp_path: Path) -> None:
    expected = layer_maps(write(tmp_path, fp8("block")))
    found = maps(load_model(tmp_path, DType.BFLOAT16), iter(expected))
    for name, parameter in found.items():
        assert torch.equal(parameter.tensor, expected[name].bfloat16())


@pytest.mark.parametrize(
    ("published", "format"),
    [
        (gptq(4, -1), (4, 128)),
        (awq(64), (4, 64)),
        (compressed("pack-quantized", 8, 256), (8, 128)),
        (compressed("naive-quantized", 4, 32), (4, 32)),
    ],
)
def test_the_formats_groups_are_kept_or_cut(
    published: Published, format: tuple[int, int], tmp_path: Path
) -> None:
    if published.config.get("format") == "pack-quantized":
        published = replace(
            published, kept=tuple(f"{p}_proj" for p in ("q", "k", "v", "o", "gate", "up"))
        )
    write(tmp_path, published)
    model = load_model(tmp_path, DType.FLOAT32)
    down = model.weights.layers[0]["down"].quantized
    assert down is not None
    assert down.format == WeightFormat(*format)


@pytest.mark.parametrize(
    ("published", "mode"),
    [(p, "none-batched") for p in (*PUBLISHED, KEPT)] + [(p, "in-torch") for p in PUBLISHED[::5]],
)
def test_greedy_tokens_are_those_of_transformers(
    published: Published, mode: str, tmp_path: Path, ties: TieCount
) -> None:
    chosen = BY_ID[mode]
    reference = Reference(write(tmp_path, published))
    pool = open_pool() if chosen.compiled else None
    with model_engine(load_model(tmp_path, DType.FLOAT32, pool=pool), chosen.setup) as engine:
        prompts = PROMPTS[1:3]
        for prompt, tokens in zip(prompts, generate(engine.core, prompts), strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
