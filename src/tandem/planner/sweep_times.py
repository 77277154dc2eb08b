"""What sweeps take with other rows than a candidate's, between some that were timed."""

from collections.abc import Callable
from dataclasses import dataclass

from tandem.planner.candidate import Candidate
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.question import Question
from tandem.planner.sweep_load import Loads
from tandem.planner.sweeps import Sweeps
from tandem.spec.model import ExpertSpec


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Seconds for a mixture's experts: few tokens go to a part of them, many to all.

    Attributes:
        all_s: if some token goes to each.
        row_tokens: in KV that a row attends to in the mean, by which rows are counted.
    """

    experts: ExpertSpec
    all_s: float
    row_tokens: float

    def seconds(self, seen_tokens: float, prompt_tokens: float) -> float:
        """Of a sweep whose rows attend to so many tokens in KV, beside tokens of prompts."""
        tokens = seen_tokens / self.row_tokens + prompt_tokens
        return self.all_s * self.experts.touched_share(tokens)


@dataclass(frozen=True, slots=True)
class SweepTimes:
    """Seconds: those without rows, for each token in KV that is attended to, and for prompts.

    Attributes:
        device_token_s, host_token_s: by where the KV lies.
        prompts: (tokens of prompts in a sweep, seconds that they add), ascending.
        experts: of a mixture; None: there are none, or they make no difference.
        hosted_s: where nothing is on the device, of as much of a cohort's way as a sweep beside
            others takes it; None: as of any other.
    """

    least_s: float
    device_token_s: float
    host_token_s: float
    prompts: tuple[tuple[float, float], ...]
    hosted_s: float | None = None
    experts: ExpertTimes | None = None

    def __call__(self, device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        """Of a sweep over so many tokens."""
        if self.hosted_s is not None and not (device_tokens or prompt_tokens):
            return self.hosted_s
        decode_s = self.least_s + device_tokens * self.device_token_s
        decode_s += host_tokens * self.host_token_s
        if self.experts is not None:
            decode_s += self.experts.seconds(device_tokens + host_tokens, prompt_tokens)
        return decode_s + self._prompts_s(prompt_tokens)

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

    def timed_s(rows: Candidate) -> float:
        return sweeps.time(candidate.elsewhere, loads.of(rows)).period_s

    experts = _expert_times(question, candidate, timed_s)

    def experts_s(rows: int, prompt_tokens: float = 0.0) -> float:
        return 0.0 if experts is None else experts.seconds(rows * context, prompt_tokens)

    def decode_s(rows: Candidate) -> float:
        return timed_s(rows) - experts_s(rows.rows)

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
    decoding = pace.decoding(candidate)
    whole_s = decode_s(decoding)
    prompts = [(0.0, 0.0)]
    for size in sizes:
        mixed = pace.loads(candidate, size, found.on_host)
        mixed_s = sum(w * sweeps.time(candidate.elsewhere, load).period_s for w, load in mixed)
        mixed_s -= experts_s(decoding.rows, size)
        prompts.append((float(size), max(0.0, mixed_s - whole_s)))
    hosted_s = None
    if candidate.has_cohorts and candidate.device_rows and candidate.host_rows:
        hosted, layers = candidate.hosted(), question.model.num_layers
        way = hosted.sweeps_per_hosted_token(layers) / candidate.sweeps_per_hosted_token(layers)
        hosted_s = way * timed_s(hosted)
    return SweepTimes(least_s, device_s, host_s, tuple(prompts[1:]), hosted_s, experts)


def _expert_times(
    question: Question, candidate: Candidate, timed_s: Callable[[Candidate], float]
) -> ExpertTimes | None:
    """What of a sweep's time follows the share of the experts that its tokens go to, and not their
    number: by sweeps of one row, of as many as go to most experts, and of all.
    """
    mixture = question.model.experts
    if mixture is None or candidate.has_cohorts:
        return None
    on_host = candidate.host_rows > candidate.device_rows
    most = candidate.host_rows if on_host else candidate.device_rows
    some = round(mixture.count / mixture.per_token)
    if most <= some or some < 2:
        return None

    def with_rows(rows: int) -> Candidate:
        if on_host:
            return candidate._replace(device_rows=0, host_rows=rows)
        alone = candidate._replace(strategy="gpu-only", host_rows=0, device_share=0.0)
        return alone._replace(device_rows=rows)

    one_s, some_s, most_s = (timed_s(with_rows(rows)) for rows in (1, some, most))
    one, few, all_of = (mixture.touched_share(rows) for rows in (1, some, most))
    part = (some - 1) / (most - 1)
    all_s = (some_s - one_s - part * (most_s - one_s)) / (few - one - part * (all_of - one))
    return ExpertTimes(mixture, max(0.0, all_s), question.lengths.context_tokens)
