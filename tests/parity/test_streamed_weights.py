"""Tokens stay those of transformers when layers come to the accelerator in every sweep."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.test_engine import PROMPTS, generate
from tests.parity.tiny_models import Case, build, rotary
from tests.support.engines import model_engine
from tests.support.setups import streamed as stream
from tests.support.setups import sweep_choice
from transformers import LlamaConfig

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.models.model import Model

CASE = Case("llama-5-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=5))
STREAMED = ((0, 1, 2, 3), (0, 4), (1, 2, 3, 4))
IDS = (
    "in-torch", "batched", "chunked", "swapped", "split", "cohorts-split", "exact-device",
    "exact-split", "exact-plain-loop", "exact-cohorts", "exact-swapped", "threaded-cohorts",
)  # fmt: skip
CASES = [
    (mode, STREAMED[i % len(STREAMED)]) for i, mode in enumerate(m for m in MODES if m.id in IDS)
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streamed")


@pytest.fixture(scope="module")
def reference(directory: Path) -> Reference:
    return Reference(build(CASE, directory))


@pytest.fixture(scope="module")
def ties() -> Iterator[TieCount]:
    count = TieCount()
    yield count
    count.check()


def load(directory: Path, streamed: tuple[int, ...], *, compiled: bool) -> Model:
    pool = open_pool() if compiled else None
    return load_model(directory, pool=pool, layers=sweep_choice(stream(*streamed)))


@pytest.mark.parametrize(
    ("index", "streamed"),
    [pytest.param(i, s, id=f"{m.id}-{'.'.join(map(str, s))}") for i, (m, s) in enumerate(CASES)],
)
def test_greedy_tokens_equal_transformers(
    index: int, streamed: tuple[int, ...], directory: Path, reference: Reference, ties: TieCount
) -> None:
    mode = CASES[index][0]
    model = load(directory, streamed, compiled=mode.compiled)
    with model_engine(model, replace(mode.setup, homes=stream(*streamed))) as engine:
        for _ in range(2):  # slots are left as the next sweep expects them
            made = generate(engine.core, PROMPTS)
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()
        assert mode.happened(engine.stats)
