"""64 greedy tokens equal those of transformers, whatever way the engine takes to them.

`tests.parity.covering` says which model runs in which modes.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.parity.covering import KINDS, models_in_modes
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES, Mode
from tests.parity.tiny_models import CASES, Case, build
from tests.support.engines import model_engine
from tests.support.switching import Switching, SwitchingStrategy

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.models.model import Model


@dataclass(frozen=True, slots=True)
class Loaded:
    """Both implementations of one case, ours in torch and on the compiled kernels."""

    reference: Reference
    in_torch: Model
    compiled: Model


class Library:
    """Cases loaded so far."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loaded: dict[str, Loaded] = {}
        self._pool = open_pool()

    def get(self, case: Case) -> Loaded:
        """Both implementations; built once."""
        if case.id not in self._loaded:
            directory = self._directory / case.id
            reference = Reference(build(case, directory))
            compiled = load_model(directory, pool=self._pool)
            self._loaded[case.id] = Loaded(reference, load_model(directory), compiled)
        return self._loaded[case.id]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    ("case", "mode"), [pytest.param(c, m, id=f"{c.id}-{m.id}") for c, m in models_in_modes()]
)
def test_greedy_tokens_equal_transformers(
    case: Case, mode: Mode, library: Library, ties: TieCount
) -> None:
    loaded = library.get(case)
    model = loaded.compiled if mode.compiled else loaded.in_torch
    with model_engine(model, mode.setup) as engine:
        for _ in range(mode.runs):
            groups = (PROMPTS,) if mode.together else tuple((prompt,) for prompt in PROMPTS)
            made = [tokens for group in groups for tokens in generate(engine.core, group)]
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(loaded.reference, prompt, tokens, ties)
        engine.check_idle()
        stats, strategy = engine.stats, engine.scheduler.strategy
    assert mode.happened(stats), stats
    if isinstance(mode.setup.strategy, Switching):
        assert isinstance(strategy, SwitchingStrategy)
        assert strategy.used == set(mode.setup.strategy.names)


def test_every_model_and_every_mode_has_its_turns() -> None:
    """A model of each kind in every mode, no model in none, and further models in each mode."""
    pairs = list(models_in_modes())
    for name in KINDS.values():
        assert [mode for case, mode in pairs if case.id == name] == list(MODES), name
    assert {case for case, _ in pairs} == set(CASES)
    for mode in MODES:
        further = {case.id for case, its in pairs if its is mode} - set(KINDS.values())
        assert len(further) >= 3, mode.id
