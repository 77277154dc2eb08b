"""Log-probabilities as OpenAI's two APIs show them."""

from collections.abc import Sequence
from typing import Any

from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.request import TokenLogprobs


def completion_logprobs(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprobs],
    text_offset: int,
) -> dict[str, Any]:
    """The `logprobs` object of a completion's choice.

    Args:
        tokenizer: gives tokens their text.
        token_ids, logprobs: equally long.
        text_offset: characters before the first of these tokens.
    """
    tokens = [tokenizer.token_text(token_id) for token_id in token_ids]
    offsets: list[int] = []
    for token in tokens:
        offsets.append(text_offset)
        text_offset += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [entry.logprob for entry in logprobs],
        "top_logprobs": [_by_text(tokenizer, entry) for entry in logprobs],
        "text_offset": offsets,
    }


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
) -> dict[str, Any]:
    """The `logprobs` object of a chat completion's choice; arguments as above."""
    content = [
        {
            **_entry(tokenizer, token_id, entry.logprob),
            "top_logprobs": [
                _entry(tokenizer, top_id, top)
                for top_id, top in zip(entry.top_token_ids, entry.top_logprobs, strict=True)
            ],
        }
        for token_id, entry in zip(token_ids, logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def _by_text(tokenizer: Tokenizer, entry: TokenLogprobs) -> dict[str, float]:
    # Different tokens can have the same text (half characters): the likeliest, first, counts.
    found: dict[str, float] = {}
    for token_id, logprob in zip(entry.top_token_ids, entry.top_logprobs, strict=True):
        found.setdefault(tokenizer.token_text(token_id), logprob)
    return found


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    return {
        "token": tokenizer.token_text(token_id),
        "logprob": logprob,
        "bytes": list(tokenizer.token_bytes(token_id)),
    }
