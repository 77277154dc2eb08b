"""Four greedy requests of different lengths, for engines that are to give the same tokens."""

from tests.support.script import run_all

from tandem.engine.building.build import build_engine_core
from tandem.engine.core import EngineCore
from tandem.engine.stats import EngineStats
from tandem.spec.config import EngineConfig
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

PROMPTS = [tuple((7 * i + 3 * j) % 500 + 5 for j in range(9 + 40 * i)) for i in range(4)]
_GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def generate(core: EngineCore) -> dict[str, list[int]]:
    """Tokens by request; the engine goes on."""
    requests = [EngineRequest(str(i), prompt, _GREEDY) for i, prompt in enumerate(PROMPTS)]
    return {name: result.token_ids for name, result in run_all(core, requests).items()}


def serve(config: EngineConfig) -> tuple[dict[str, list[int]], EngineStats]:
    """Tokens by request, and the statistics of an engine that is closed again."""
    core = build_engine_core(config, check=True)
    try:
        return generate(core), core.stats()
    finally:
        core.close()
