"""What a sampled token means to its request's owner."""

from tandem.plan.events import TokensSampled
from tandem.scheduler.sequence import Sequence
from tandem.spec.request import FinishReason, RequestOutput, TokenLogprobs


def one_token(
    sequence: Sequence,
    token: int,
    *,
    stop: bool,
    full: bool,
    logprobs: tuple[TokenLogprobs, ...] = (),
) -> RequestOutput:
    """News of one more token.

    Args:
        stop: it ends the sequence. full: no further one is allowed.
    """
    reason = FinishReason.STOP if stop else FinishReason.LENGTH if full else None
    return RequestOutput(
        request_id=sequence.request_id,
        token_ids=(token,),
        finish_reason=reason,
        stop_token_id=token if stop else None,
        logprobs=logprobs,
        cached_tokens=max(0, sequence.cached_tokens),
    )


def no_token(sequence: Sequence, num_output: int) -> RequestOutput:
    """The model gave no usable logits after `num_output` tokens: the request has failed."""
    message = "the model's output is not a number for this request; check the weights and dtype"
    if num_output < sequence.request.sampling.min_tokens and sequence.stop_ids:
        message = (
            "no token could be chosen for this request: either min_tokens forbids all that the "
            f"model allows ({len(sequence.stop_ids)} ids would end it), or the model's output "
            "is not a number; lower min_tokens, or check the weights and dtype"
        )
    return RequestOutput(sequence.request_id, (), FinishReason.ERROR, error=message)


def logprobs_of(event: TokensSampled, place: int, sequence: Sequence) -> tuple[TokenLogprobs, ...]:
    """One row's share of a step's log-probabilities: as many alternatives as it asked for."""
    wanted = sequence.request.sampling.logprobs
    if wanted is None or event.logprobs is None:
        return ()
    ids, values = event.top_token_ids, event.top_logprobs
    if wanted == 0 or ids is None or values is None:
        return (TokenLogprobs(float(event.logprobs[place])),)
    return (
        TokenLogprobs(
            float(event.logprobs[place]),
            tuple(ids[place, :wanted].tolist()),
            tuple(values[place, :wanted].tolist()),
        ),
    )
