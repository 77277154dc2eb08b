"""Flags of commands that generate; their names are `SamplingParams`'."""

from collections.abc import Callable

from tandem.cli.flags import Flag
from tandem.spec.errors import RequestError
from tandem.spec.sampling import SamplingParams

DEFAULT_MAX_TOKENS = 128

# Builds the parameters; a call, so that errors in them appear when the command runs.
SamplingOptions = Callable[[], SamplingParams]


def _tuple(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(texts or ())


def _token_ids(texts: list[str] | None) -> tuple[int, ...]:
    parts = [part.strip() for text in texts or () for part in text.split(",")]
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise RequestError(
            f"--stop-token-ids must be numbers such as 1,2, not {','.join(parts)!r}",
            param="stop_token_ids",
        ) from None


SAMPLING_FLAGS = (
    Flag(
        "max_tokens",
        int | None,
        None,
        f"Most tokens to generate per sample; by default {DEFAULT_MAX_TOKENS}, or what the context "
        "leaves.",
    ),
    Flag("min_tokens", int, 0, "Neither end token nor stop string counts before."),
    Flag("temperature", float, 0.0, "0 always takes the most probable token."),
    Flag("top_p", float, 1.0, "Sample from the most probable tokens with this total."),
    Flag("top_k", int, 0, "Sample from this many most probable tokens; 0: all."),
    Flag("min_p", float, 0.0, "Drop tokens less probable than this share of the best."),
    Flag("repetition_penalty", float, 1.0, "Above 1: discourage tokens of prompt and output."),
    Flag("presence_penalty", float, 0.0, "Above 0: discourage tokens of the output."),
    Flag("frequency_penalty", float, 0.0, "Above 0: the more, the more frequent they are."),
    Flag("stop", list[str] | None, None, "Text that ends the output; repeatable.", "TEXT", _tuple),
    Flag(
        "stop_token_ids",
        list[str] | None,
        None,
        "Tokens that end the output, as 1,2; repeatable.",
        "IDS",
        _token_ids,
    ),
    Flag("ignore_eos", bool, False, "Go on after the end-of-sequence token."),
    Flag("include_stop_str_in_output", bool, False, "Keep the stop string in the text."),
)


def notes_on(params: SamplingParams, n: int = 1) -> list[str]:
    """What a user may not expect of these parameters, one line each."""
    if not params.greedy:
        return []
    filters = {"--top-p": params.top_p != 1, "--top-k": params.top_k > 0, "--min-p": params.min_p}
    notes = [
        f"{flag} changes nothing at temperature 0; add --temperature"
        for flag, given in filters.items()
        if given
    ]
    if n > 1:
        notes.append(f"all {n} samples are the same at temperature 0; add --temperature")
    return notes
