"""What sweeps take with other rows than a candidate's, between some that were timed."""

from dataclasses import dataclass

from tandem.planner.candidate import Candidate
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.question import Question
from tandem.planner.sweep_load import Loads
from tandem.planner.sweeps import Sweeps


@dataclass(frozen=True, slots=True)
class SweepTimes:
    """Seconds: those without rows, for each token in KV that is attended to, and for prompts.

    Attributes:
        device_token_s, host_token_s: by where the KV lies.
        prompts: (tokens of prompts in a sweep, seconds that they add), ascending.
        hosted_s: where nothing is on the device, of as much of a cohort's way as a sweep beside
            others takes it; None: as of any other.
    """

    least_s: float
    device_token_s: float
    host_token_s: float
    prompts: tuple[tuple[float, float], ...]
    hosted_s: float | None = None

    def __call__(self, device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        """Of a sweep over so many tokens."""
        if self.hosted_s is not None and not (device_tokens or prompt_tokens):
            return self.hosted_s
        decode_s = self.least_s + device_tokens * self.device_token_s
        return decode_s + host_tokens * self.host_token_s + self._prompts_s(prompt_tokens)

    def _prompts_s(self, tokens: float) -> float:
        before, before_s = 0.0, 0.0
        for size, size_s in self.prompts:
            if tokens <= size:
                break
            before, before_s = size, size_s
        else:
            return before_s * tokens / before
        return before_s + (size_s - before_s) * (tokens - before) / (size - before)


def sweep_times(
    question: Question, sweeps: Sweeps, pace: PromptPace, loads: Loads, candidate: Candidate
) -> SweepTimes:
    """Of a candidate: its own rows, and as few as can be, in each tier."""
    context = question.lengths.context_tokens

    def decode_s(rows: Candidate) -> float:
        return sweeps.time(candidate.elsewhere, loads.of(rows)).period_s

    def slope(many: Candidate, few: Candidate) -> float:
        grown = many.rows - few.rows
        seconds = decode_s(many) - decode_s(few)
        return max(0.0, seconds) / (grown * context) if grown else 0.0

    alone = candidate._replace(strategy="gpu-only", host_rows=0, passes=0, device_share=0.0)
    if candidate.device_rows:
        few = alone._replace(device_rows=1)
        device_s, host_s = slope(alone, few), slope(candidate, alone)
        least_s = decode_s(few) - context * device_s
    else:
        few = candidate._replace(host_rows=1)
        device_s, host_s = 0.0, slope(candidate, few)
        least_s = decode_s(few) - context * host_s
    found = pace.of(candidate)
    # any at all may make a difference, as where layers are lent while none are read
    sizes = sorted({1, found.chunk, pace.room(candidate)})
    whole_s = decode_s(pace.decoding(candidate))
    prompts = [(0.0, 0.0)]
    for size in sizes:
        mixed = pace.loads(candidate, size, found.on_host)
        mixed_s = sum(w * sweeps.time(candidate.elsewhere, load).period_s for w, load in mixed)
        prompts.append((float(size), max(0.0, mixed_s - whole_s)))
    hosted_s = None
    if candidate.has_cohorts and candidate.device_rows and candidate.host_rows:
        hosted, layers = candidate.hosted(), question.model.num_layers
        way = hosted.sweeps_per_hosted_token(layers) / candidate.sweeps_per_hosted_token(layers)
        hosted_s = way * decode_s(hosted)
    return SweepTimes(least_s, device_s, host_s, tuple(prompts[1:]), hosted_s)
