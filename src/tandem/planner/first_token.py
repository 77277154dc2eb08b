"""From a request's arrival to its first token, where requests come independently."""

import math
from dataclasses import dataclass

from tandem.planner.candidate import Candidate
from tandem.planner.prediction import Predictor
from tandem.planner.question import Lengths
from tandem.planner.rates import Rates

_FULL = 0.95
"""Share of the time for which prompts are read at most: beyond it, what they wait for each other is
no longer told by a mean.
"""


@dataclass(frozen=True, slots=True)
class _Sweeps:
    """Of the requests that run.

    Attributes:
        mean_s: of all. decode_s: without prompts. prompt_s: that a mean prompt adds.
        share: that read any. of_a_prompt: that read one, in the mean. room: tokens of prompts in
            one.
    """

    mean_s: float
    decode_s: float
    prompt_s: float
    share: float
    of_a_prompt: float
    room: int

    @staticmethod
    def of(predictor: Predictor, running: Candidate, rates: Rates) -> "_Sweeps":
        tokens, pace = predictor.lengths.prompt_tokens, predictor.pace.of(running)
        sweeps = math.ceil(tokens / pace.chunk)
        mixed_s = rates.ttft_s / sweeps
        decode_s = min(predictor.decode_s(running), mixed_s)
        prompt_s = (mixed_s - decode_s) / pace.chunk * tokens
        room = predictor.pace.room(running)
        return _Sweeps(rates.tpot_s, decode_s, prompt_s, rates.prefill_share, sweeps, room)

    def reading_s(self, lengths: Lengths) -> float:
        """Of a prompt in the mean: sweeps that it fills, and one with what is left of it, which
        takes longer than one without by as much as it has tokens.
        """
        prompts = [shape.prompt_tokens for shape in lengths.shapes] or [lengths.prompt_tokens]
        sweeps = sum(math.ceil(prompt / self.room) for prompt in prompts) / len(prompts)
        return sweeps * self.decode_s + self.prompt_s

    def under_way_s(self, lengths: Lengths) -> float:
        """Until the first sweep that may read a prompt that comes now: what is left of the one that
        is computed, more of which fall into long ones, and the one launched behind it.
        """
        each_s = self.of_a_prompt * self.decode_s + self.prompt_s
        square = (1 - self.share) * self.decode_s**2
        square += self.share / self.of_a_prompt * each_s**2 * lengths.prompt_unevenness
        return square / (2 * self.mean_s) + self.mean_s

    def queue_s(self, lengths: Lengths, per_s: float) -> float:
        """Behind prompts that wait: one server, whose times vary as prompts do. What is left of the
        one that is read is part of the sweep under way.
        """
        each_s = lengths.prompt_tokens / self.room * self.decode_s + self.prompt_s
        busy = min(_FULL, per_s * each_s)
        return busy**2 / (1 - busy) * each_s / 2 * lengths.prompt_unevenness


def first_token_s(
    predictor: Predictor, running: Candidate, rates: Rates, requests_per_s: float
) -> float:
    """Seconds of a mean request: its own sweeps, those that are under way when it comes, if any
    are, and prompts that came before.

    Args:
        running: with the requests that run at that rate of arrival. rates: of it.
    """
    lengths, sweeps = predictor.lengths, _Sweeps.of(predictor, running, rates)
    some_run = 1 - math.exp(-requests_per_s * predictor.request_s(rates))
    waiting_s = some_run * sweeps.under_way_s(lengths) + sweeps.queue_s(lengths, requests_per_s)
    return sweeps.reading_s(lengths) + waiting_s
