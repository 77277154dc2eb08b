"""From an engine's outputs for one request to text that ends where the caller wants."""

from collections.abc import Sequence

from tandem.engine.frontend.results import Delta
from tandem.engine.frontend.stop_strings import StopMatch, StopMatcher
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.request import FinishReason, RequestOutput
from tandem.spec.sampling import SamplingParams


class OutputAssembler:
    """Detokenizes one sample and looks for its stop strings.

    Args:
        tokenizer: None if the model has none; text is then empty.
        sampling: the caller's parameters, stop strings included.
        prompt_index, sample_index: copied into the deltas.
        context: tokens that the text goes on from.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        sampling: SamplingParams,
        prompt_index: int,
        sample_index: int,
        context: Sequence[int] = (),
    ) -> None:
        self._detokenizer = None if tokenizer is None else tokenizer.detokenizer(context)
        self._stops = StopMatcher(sampling.stop, sampling.include_stop_str_in_output)
        self._sampling = sampling
        self._prompt_index = prompt_index
        self._sample_index = sample_index
        self._num_tokens = 0

    def feed(self, output: RequestOutput) -> Delta:
        """The delta for `output`. If it ends with a stop string, the engine must be told so by an
        abort, unless `output` ended the request itself; nothing may be fed after an end.
        """
        texts: list[str] = []
        for used, token_id in enumerate(output.token_ids, start=1):
            self._num_tokens += 1
            if used == len(output.token_ids) and self._is_silent(output):
                break
            match = self._take(self._decode(token_id), texts)
            if match is not None:
                return self._stopped(output, used, texts, match)
        if output.finish_reason is not None:
            rest = "" if self._detokenizer is None else self._detokenizer.finish()
            match = self._take(rest, texts)
            if match is not None:
                return self._stopped(output, len(output.token_ids), texts, match)
            texts.append(self._stops.flush())
        return self._delta(
            output, len(output.token_ids), texts, output.finish_reason, self._stop_token(output)
        )

    def _decode(self, token_id: int) -> str:
        return "" if self._detokenizer is None else self._detokenizer.feed(token_id)

    def _take(self, piece: str, texts: list[str]) -> str | None:
        """Append what may be released to `texts`; return the stop string if one ended it."""
        armed = self._num_tokens >= self._sampling.min_tokens
        released = self._stops.feed(piece, armed)
        if isinstance(released, StopMatch):
            texts.append(released.text)
            return released.stop
        texts.append(released)
        return None

    def _stop_token(self, output: RequestOutput) -> int | None:
        """The caller's own stop token, if one ended the output; the model's end is no surprise."""
        wanted = output.stop_token_id in self._sampling.stop_token_ids
        return output.stop_token_id if wanted else None

    def _is_silent(self, output: RequestOutput) -> bool:
        """True if the output's last token is the one that stopped it, which has no text."""
        return (
            output.finish_reason is FinishReason.STOP
            and output.stop_token_id == output.token_ids[-1]
            and not self._sampling.include_stop_str_in_output
        )

    def _stopped(self, output: RequestOutput, used: int, texts: list[str], stop: str) -> Delta:
        return self._delta(output, used, texts, FinishReason.STOP, stop)

    def _delta(
        self,
        output: RequestOutput,
        used: int,
        texts: list[str],
        finish_reason: FinishReason | None,
        stop_reason: str | int | None,
    ) -> Delta:
        return Delta(
            self._prompt_index,
            self._sample_index,
            "".join(texts),
            output.token_ids[:used],
            output.logprobs[:used],
            finish_reason,
            stop_reason,
            output.cached_tokens,
        )
