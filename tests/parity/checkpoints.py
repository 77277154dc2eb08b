"""Tiny models on disk with their references, and engines that serve them layer by layer apart."""

from collections.abc import Sequence
from pathlib import Path

from tests.parity.generation import NUM_TOKENS, PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import Mode
from tests.parity.tiny_models import Case, build
from tests.support.engines import model_engine
from tests.support.setups import Setup

from tandem.engine.stats import EngineStats
from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.plan.weights import Home
from tandem.spec.precision import Precision

Homes = tuple[tuple[int, Home], ...]
Experts = tuple[tuple[int, tuple[int, ...]], ...]


class Checkpoints:
    """Models of cases in a directory, and transformers' of the same weights; each is made once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Reference] = {}

    def get(self, case: Case) -> tuple[Path, Reference]:
        """The checkpoint and its reference."""
        path = self._directory / case.id
        if case.id not in self._made:
            self._made[case.id] = Reference(build(case, path))
        return path, self._made[case.id]


def check_placed(
    checkpoint: tuple[Path, Reference],
    mode: Mode,
    setup: Setup,
    ties: TieCount,
    *,
    weights: Precision | None = None,
    rounds: Sequence[int] = (NUM_TOKENS,),
) -> EngineStats:
    """Serve the prompts in a mode's way with layers where the setup says.

    Args:
        rounds: tokens to generate, on the same engine each time: slots must be left as the next
            sweep expects them.

    Returns: the statistics, which show that the mode happened, whichever of its joins failed.
    """
    directory, reference = checkpoint
    pool = open_pool() if mode.compiled else None
    model = load_model(directory, weights, pool=pool, layers=setup.layers)
    with model_engine(model, setup) as engine:
        for num_tokens in rounds:
            made = generate(engine.core, PROMPTS, num_tokens)
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()
        for layer, hits in enumerate(model.expert_hits.by_layer()):
            assert (sum(hits) > 0) == (model.spec.routed_experts(layer) is not None)
        if mode.id == "exact-cohorts":  # which joins fail is drawn, and anew by other programs
            assert engine.stats.cohort_joins > 0
        else:
            assert mode.happened(engine.stats)
        return engine.stats
