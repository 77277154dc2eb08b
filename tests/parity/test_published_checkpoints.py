"""Checkpoints quantized by others: every number is theirs, and greedy tokens are transformers'."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.published_checkpoint import Written, write
from tests.parity.published_formats import PUBLISHED, Published, awq, compressed, fp8, gptq
from tests.parity.quantized_weights import CASE, MIXTURE
from tests.parity.tiny_models import Case, gemma, rotary
from tests.support.engines import model_engine
from tests.support.setups import streamed as stream
from tests.support.setups import sweep_choice
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    MixtralConfig,
    Phi3Config,
    Qwen2Config,
)

from tandem.kernels import native
from tandem.kernels.open_pool import open_pool
from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_parameters
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.models.weights import Parameter
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

NUM_TOKENS = 24
BY_ID = {mode.id: mode for mode in MODES}
KEPT = replace(gptq(4, 128), id="gptq-kept", kept=("o_proj", "down_proj"))
ALL = (*PUBLISHED, KEPT)
SIZES = {"intermediate_size": 256, "num_hidden_layers": 3}
OTHERS = (
    MIXTURE,
    Case("mixtral", rotary(MixtralConfig, 128, 4, 2, 32, num_local_experts=4, **SIZES)),
    Case("qwen2-biases", rotary(Qwen2Config, 128, 4, 2, 32, **SIZES)),
    Case("phi3-fused", rotary(Phi3Config, 128, 4, 2, 32, **SIZES)),
    Case("gemma2", gemma(Gemma2Config, 128, 4, 2, 32, **SIZES)),
    Case("gemma3", gemma(Gemma3TextConfig, 128, 4, 2, 32, **SIZES)),
)
KINDS = (
    gptq(4, 64, symmetric=False),
    awq(64),
    compressed("pack-quantized", 4, 32, symmetric=False),
    compressed("int-quantized", 8, -1),
    fp8("block"),
)
# Where layers lie: resident, streamed through the accelerator, or read from disk.
RUNS = (
    [(CASE, p, mode) for p in ALL for mode in ("none-batched", "in-torch", "batched-streamed")]
    + [(CASE, p, "none-batched-disk") for p in KINDS]
    + [(case, p, "none-batched") for case in OTHERS[:2] for p in KINDS]
    + [
        (case, KINDS[(i + j) % 5], "none-batched")
        for i, case in enumerate(OTHERS[2:])
        for j in range(3)
    ]
    + [(OTHERS[i % 6], p, "batched-streamed") for i, p in enumerate((*KINDS, KINDS[0]))]
    + [(OTHERS[i], KINDS[4 - i], "none-batched-disk") for i in range(0, 5, 2)]
)


class Library:
    """Checkpoints that have been written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[tuple[str, str], tuple[Path, Reference]] = {}

    def get(self, case: Case, published: Published) -> tuple[Path, Reference]:
        """One of them, and its reference; written once."""
        key = case.id, published.id
        if key not in self._made:
            place = self._directory / str(len(self._made))
            self._made[key] = place, Reference(write(place, published, case=case).reference)
        return self._made[key]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("published"))


def maps(model: Model, written: Written) -> dict[str, Parameter]:
    parameters = checkpoint_parameters(model.weights, load_architecture(model.spec.architecture))
    return {name: parameters[f"{name}.weight"] for name in written.weights}


def held(parameter: Parameter) -> torch.Tensor:
    return parameter.tensor if parameter.quantized is None else parameter.quantized.dequantize()


@pytest.mark.parametrize(
    ("case", "published", "shards"),
    [pytest.param(CASE, p, 1 + 2 * (i % 2), id=p.id) for i, p in enumerate(ALL)]
    + [
        pytest.param(case, KINDS[i % 5], 1, id=f"{case.id}-{KINDS[i % 5].id}")
        for i, case in enumerate(OTHERS)
    ],
)
def test_numbers_are_the_checkpoints(
    case: Case, published: Published, shards: int, tmp_path: Path
) -> None:
    written = write(tmp_path, published, shards, case)
    assert written.weights
    for precision in (DType.FLOAT32, Precision.uniform(DType.FLOAT32)):
        found = maps(load_model(tmp_path, precision), written)
        for name, parameter in found.items():
            assert torch.equal(held(parameter), written.weights[name]), name
            may_be_few_bits = precision is DType.FLOAT32 and not published.id.startswith("fp8")
            left = name.endswith(published.kept or ("?",))
            assert (parameter.quantized is not None) == (may_be_few_bits and not left)


def test_eight_bit_floating_point_is_rounded_to_the_wanted_type_once(tmp_path: Path) -> None:
    written = write(tmp_path, fp8("block"))
    found = maps(load_model(tmp_path, DType.BFLOAT16), written)
    for name, parameter in found.items():
        assert torch.equal(parameter.tensor, written.weights[name].bfloat16())


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
    ("case", "published", "mode"),
    [pytest.param(c, p, mode, id=f"{c.id}-{p.id}-{mode}") for c, p, mode in RUNS],
)
def test_greedy_tokens_are_those_of_transformers(
    case: Case, published: Published, mode: str, library: Library, tmp_path: Path, ties: TieCount
) -> None:
    chosen = BY_ID[mode.removesuffix("-streamed").removesuffix("-disk")]
    homes = stream(0, 2) if mode.endswith("-streamed") else ()
    disk = DiskPlacement((0, 2), "direct", (tmp_path,)) if mode.endswith("-disk") else None
    if disk is not None and not native.available():
        pytest.skip("layers on disk need the compiled kernels")
    directory, reference = library.get(case, published)
    model = load_model(
        directory,
        DType.FLOAT32,
        pool=open_pool() if chosen.compiled else None,
        layers=sweep_choice(homes),
        disk=disk,
    )
    assert bool(model.weights.disk_bytes) == (disk is not None)
    prompts = PROMPTS[1:3]
    with model_engine(model, replace(chosen.setup, homes=homes)) as engine:
        made = generate(engine.core, prompts, NUM_TOKENS)
    for prompt, tokens in zip(prompts, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)
    model.weights.close()
