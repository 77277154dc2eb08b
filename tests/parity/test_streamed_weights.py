"""Tokens stay those of transformers when layers come to the accelerator in every sweep."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES, Mode
from tests.parity.test_engine import PROMPTS, generate
from tests.parity.tiny_models import Case, build, moe, rotary
from tests.support.engines import model_engine
from tests.support.setups import streamed as stream
from tests.support.setups import sweep_choice
from transformers import LlamaConfig

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.models.model import Model

MODELS = (
    Case("llama-5-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=5)),
    Case("qwen3moe-5-layers", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
STREAMED = {  # layers of a kind: those with experts, in the second model
    "llama-5-layers": ((0, 1, 2, 3), (0, 4), (1, 2, 3, 4)),
    "qwen3moe-5-layers": ((1, 2, 3, 4), (1, 4), (2, 3)),
}
IDS = (
    "in-torch", "batched", "chunked", "swapped", "split", "cohorts-split", "exact-device",
    "exact-split", "exact-plain-loop", "exact-cohorts", "exact-swapped", "threaded-cohorts",
)  # fmt: skip
FEWER = ("in-torch", "chunked", "cohorts-split", "exact-split", "exact-swapped", "threaded-cohorts")
CASES = [
    (case, mode, STREAMED[case.id][i % 3])
    for case in MODELS
    for i, mode in enumerate(
        mode for mode in MODES if mode.id in (IDS if case is MODELS[0] else FEWER)
    )
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streamed")


@pytest.fixture(scope="module")
def references(directory: Path) -> dict[str, Reference]:
    return {case.id: Reference(build(case, directory / case.id)) for case in MODELS}


@pytest.fixture(scope="module")
def ties() -> Iterator[TieCount]:
    count = TieCount()
    yield count
    count.check()


def load(directory: Path, streamed: tuple[int, ...], *, compiled: bool) -> Model:
    pool = open_pool() if compiled else None
    return load_model(directory, pool=pool, layers=sweep_choice(stream(*streamed)))


@pytest.mark.parametrize(
    ("case", "mode", "streamed"),
    [pytest.param(c, m, s, id=f"{c.id}-{m.id}-{'.'.join(map(str, s))}") for c, m, s in CASES],
)
def test_greedy_tokens_equal_transformers(
    case: Case,
    mode: Mode,
    streamed: tuple[int, ...],
    directory: Path,
    references: dict[str, Reference],
    ties: TieCount,
) -> None:
    model = load(directory / case.id, streamed, compiled=mode.compiled)
    with model_engine(model, replace(mode.setup, homes=stream(*streamed))) as engine:
        for _ in range(2):  # slots are left as the next sweep expects them
            made = generate(engine.core, PROMPTS)
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(references[case.id], prompt, tokens, ties)
        engine.check_idle()
        assert mode.happened(engine.stats)
