"""Accept or refuse a request, with the numbers."""

from array import array

import numpy as np

from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.placement import device_limit
from tandem.scheduler.sequence import ARRIVAL_BITS, Sequence
from tandem.spec.errors import ContextLengthError, RequestError
from tandem.spec.random import derive_seed
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

_MAX_PRIORITY = 2 ** (63 - ARRIVAL_BITS) - 1


def make_sequence(
    request: EngineRequest,
    arrival: int,
    config: SchedulerConfig,
    eos_ids: tuple[int, ...],
    vocab_size: int,
) -> Sequence:
    """Check a request against the model and turn it into a sequence.

    Raises:
        RequestError: empty prompt, a token id outside the vocabulary, a priority out of range, no
            token that could be chosen.
        ContextLengthError: prompt and output exceed the model's length.
    """
    prompt, params = request.prompt_token_ids, request.sampling
    if not prompt:
        raise RequestError("the prompt is empty; give at least one token", param="prompt")
    tokens = _token_array(prompt, vocab_size)
    _check_ids("logit_bias", tuple(token for token, _ in params.logit_bias), vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    if abs(request.priority) > _MAX_PRIORITY:
        raise RequestError(
            f"priority must be between {-_MAX_PRIORITY} and {_MAX_PRIORITY}, "
            f"not {request.priority}",
            param="priority",
        )
    limit = config.max_model_len
    wanted = len(prompt) + (params.max_tokens if params.max_tokens is not None else 1)
    if wanted > limit:
        raise ContextLengthError(
            _too_long(len(prompt), wanted - len(prompt), config), param="prompt"
        )
    if len(prompt) + params.min_tokens > limit:
        raise ContextLengthError(
            _too_long(len(prompt), params.min_tokens, config), param="min_tokens"
        )
    stops = _stop_ids(params, eos_ids, vocab_size)
    seed = params.seed if params.seed is not None else derive_seed(config.seed, arrival, 0)
    return Sequence(
        request=request,
        arrival=arrival,
        seed=seed & 0xFFFFFFFFFFFFFFFF,
        limit=wanted if params.max_tokens is not None else limit,
        stop_ids=stops,
        tokens=tokens,
    )


def _token_array(prompt: tuple[int, ...], vocab_size: int) -> "array[int]":
    """As 32-bit integers, all of them in the vocabulary."""
    try:
        tokens = array("i", prompt)
        found = np.frombuffer(tokens, dtype=np.int32)
        within = found.min() >= 0 and found.max() < vocab_size
    except OverflowError:
        within, tokens = False, array("i")
    if not within:
        bad = next(t for t in prompt if not 0 <= t < vocab_size)
        raise RequestError(
            f"prompt token id {bad} is outside the vocabulary of {vocab_size}", param="prompt"
        )
    return tokens


def _check_ids(param: str, token_ids: tuple[int, ...], vocab_size: int) -> None:
    outside = next((token for token in token_ids if not 0 <= token < vocab_size), None)
    if outside is not None:
        raise RequestError(
            f"{param} token id {outside} is outside the vocabulary of {vocab_size}", param=param
        )


def _stop_ids(params: SamplingParams, eos_ids: tuple[int, ...], vocab_size: int) -> frozenset[int]:
    """Token ids that end the sequence, and that `min_tokens` therefore forbids at first."""
    stops = frozenset(params.stop_token_ids)
    if not params.ignore_eos:
        stops |= frozenset(eos_ids)
    if params.min_tokens and len(stops) >= vocab_size:
        raise RequestError(
            f"min_tokens forbids all {vocab_size} tokens of the vocabulary, since each of them "
            "ends the request; lower min_tokens to 0 or give fewer stop_token_ids",
            param="min_tokens",
        )
    return stops


def check_fits(
    sequence: Sequence, config: SchedulerConfig, total: BlockNeed, *, uses_host: bool
) -> None:
    """Refuse what could never run, however long it waited.

    Raises:
        ContextLengthError: the pools that it may use cannot hold it even alone.
    """
    longest = -(-(sequence.limit - 1) // config.block_size)
    if not uses_host:
        device, host = longest, 0
    else:
        device = min(longest, device_limit(sequence, config, total))
        host = longest - device
    if BlockNeed(device, host).fits(total):
        return
    raise ContextLengthError(
        f"{sequence.limit} tokens of prompt and output need {longest} KV blocks "
        f"({device} device, {host} host), but there are {total.device} device and "
        f"{total.host} host; shorten the prompt, lower max_tokens, or give the engine more memory",
        param="prompt",
    )


def _too_long(prompt: int, output: int, config: SchedulerConfig) -> str:
    limit = "this model's maximum context length is"
    remedy = "shorten the prompt or lower max_tokens"
    if config.max_len_is_planned:
        limit = "the plan is for requests of at most"
        remedy = "shorten the prompt, lower max_tokens, or plan for longer requests"
    return (
        f"{limit} {config.max_model_len} tokens, but {prompt} prompt tokens and "
        f"{output} output tokens make {prompt + output}; {remedy}"
    )
