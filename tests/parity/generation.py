"""The prompts of parity tests, and an engine's greedy continuations of them."""

from tests.parity.tiny_models import VOCAB_SIZE
from tests.support.script import run_all

from tandem.engine.clients.driver import Core
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams

NUM_TOKENS = 64
PROMPTS = tuple(
    tuple((7 * length + 13 * i * i + i) % VOCAB_SIZE for i in range(length))
    for length in (1, 17, 45, 90)
)


def generate(
    core: Core, prompts: tuple[tuple[int, ...], ...], num_tokens: int = NUM_TOKENS
) -> list[list[int]]:
    """Tokens after each prompt, past the end-of-sequence token."""
    params = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    requests = [EngineRequest(str(i), prompt, params) for i, prompt in enumerate(prompts)]
    results = run_all(core, requests)
    assert all(result.finish_reason is FinishReason.LENGTH for result in results.values())
    return [results[request.request_id].token_ids for request in requests]
