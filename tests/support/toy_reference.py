"""What the toy model must generate, worked out plainly: one token, one row, no cache."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray
from tests.support.toy_maths import dense_logits

from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams


def greedy(
    request: EngineRequest, *, num_layers: int, vocab_size: int, eos_ids: tuple[int, ...] = ()
) -> tuple[list[int], FinishReason]:
    """Tokens and the reason of the end of a greedy request with `max_tokens`."""
    params = request.sampling
    assert params.greedy
    assert params.max_tokens is not None
    prompt = list(request.prompt_token_ids)
    stops = set(params.stop_token_ids) | (set() if params.ignore_eos else set(eos_ids))
    made: list[int] = []
    while len(made) < params.max_tokens:
        scores = dense_logits(prompt + made, num_layers, vocab_size)
        token = int(_adjusted(scores, prompt, made, stops, params).argmax())
        made.append(token)
        if token in stops:
            return made, FinishReason.STOP
    return made, FinishReason.LENGTH


def _adjusted(
    scores: NDArray[np.float32],
    prompt: list[int],
    made: list[int],
    stops: set[int],
    params: SamplingParams,
) -> NDArray[np.float32]:
    """Bans, penalties and bias in that order."""
    if len(made) < params.min_tokens:
        scores[list(stops)] = -np.inf
    for token in set(prompt) | set(made):
        penalty = np.float32(params.repetition_penalty)
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    for token, count in Counter(made).items():
        scores[token] -= np.float32(params.presence_penalty)
        scores[token] -= np.float32(params.frequency_penalty) * np.float32(count)
    for token, bias in params.logit_bias:
        scores[token] += np.float32(bias)
    return scores
