"""Tokens stay those of transformers when MLPs, or experts, are the CPU's and the rest is not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.quantized_weights import precision, with_rounded_weights
from tests.parity.test_engine import PROMPTS, generate
from tests.parity.tiny_models import Case, build, gemma, moe, rotary
from tests.support.engines import model_engine
from transformers import Gemma2Config, LlamaConfig, MixtralConfig

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import Home
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

MODELS = (
    Case("llama", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=6)),
    Case("gemma2", gemma(Gemma2Config, 32, 4, 2, 8, num_hidden_layers=4)),  # norms after branches
    Case("mixtral", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=4)),
    Case("qwen3moe", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
Homes = tuple[tuple[int, Home], ...]
Experts = tuple[tuple[int, tuple[int, ...]], ...]
PLACEMENTS: dict[str, Homes] = {
    "every": tuple((layer, "cpu-mlp") for layer in range(4)),
    "mixed": ((0, "cpu-mlp"), (1, "streamed"), (2, "cpu"), (3, "streamed")),
    "after-cpu": ((1, "cpu"), (2, "cpu-mlp"), (3, "cpu")),
}
RUNS = {
    "llama": (
        ("host-lane", "every"), ("exact-split", "every"), ("threaded-cohorts", "every"),
        ("swapped", "mixed"), ("exact-cohorts", "mixed"), ("cohorts-split", "after-cpu"),
    ),
    "gemma2": (("exact-split", "every"),),
    "mixtral": (
        ("in-torch", "every"), ("exact-cohorts", "mixed"), ("threaded-split", "after-cpu"),
    ),
    "qwen3moe": (
        ("chunked", "every"), ("exact-split", "every"), ("threaded-cohorts", "after-cpu"),
    ),
}  # fmt: skip
BY_ID = {mode.id: mode for mode in MODES}
CASES = [(case, *run) for case in MODELS for run in RUNS[case.id]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cpu-mlps")


@pytest.fixture(scope="module")
def references(directory: Path) -> dict[str, Reference]:
    return {case.id: Reference(build(case, directory / case.id)) for case in MODELS}


@pytest.fixture(scope="module")
def ties() -> Iterator[TieCount]:
    count = TieCount()
    yield count
    count.check()


def check_parity(
    directory: Path,
    reference: Reference,
    name: str,
    homes: Homes,
    ties: TieCount,
    weights: Precision | None = None,
    experts: Experts = (),
    rules: tuple[CpuRule, ...] = (),
) -> None:
    mode = BY_ID[name]
    setup = replace(mode.setup, homes=homes, experts=experts, cpu_rules=rules)
    pool = open_pool() if mode.compiled else None
    model = load_model(directory, weights, pool=pool, layers=setup.layers)
    with model_engine(model, setup) as engine:
        made = generate(engine.core, PROMPTS)
        for prompt, tokens in zip(PROMPTS, made, strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()
        for layer, hits in enumerate(model.expert_hits.by_layer()):
            assert (sum(hits) > 0) == (model.spec.routed_experts(layer) is not None)
        if name == "exact-cohorts":  # which joins fail is drawn, and drawn anew by other programs
            assert engine.stats.cohort_joins > 0
        else:
            assert mode.happened(engine.stats)


@pytest.mark.parametrize(
    ("case", "name", "placement"), [pytest.param(*c, id=f"{c[0].id}-{c[1]}-{c[2]}") for c in CASES]
)
def test_greedy_tokens_equal_transformers(
    case: Case,
    name: str,
    placement: str,
    directory: Path,
    references: dict[str, Reference],
    ties: TieCount,
) -> None:
    homes = PLACEMENTS[placement]
    if case.id == "qwen3moe":  # whole layers in host memory are all of those with experts
        homes = tuple(each for each in homes if each[0] or each[1] == "cpu-mlp")
    check_parity(directory / case.id, references[case.id], name, homes, ties)


@pytest.mark.parametrize(
    ("format", "name"),
    [(WeightFormat(8, 128), "exact-split"), (WeightFormat(4, 32), "threaded-cohorts")],
    ids=str,
)
def test_quantized_mlps_give_the_tokens_of_the_same_numbers(
    format: WeightFormat, name: str, tmp_path: Path, ties: TieCount
) -> None:
    reference = Reference(with_rounded_weights(tmp_path, format))
    homes: Homes = ((0, "cpu-mlp"), (2, "cpu-mlp"))
    check_parity(tmp_path, reference, name, homes, ties, precision(tmp_path, format))
