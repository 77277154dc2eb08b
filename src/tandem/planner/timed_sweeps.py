"""A few sweeps that are timed for what those between them take."""

from collections.abc import Callable

from tandem.planner.candidate import Candidate
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.question import Question
from tandem.planner.sweep_load import Loads
from tandem.planner.sweep_times import ExpertTimes, SweepTimes
from tandem.planner.sweeps import Sweeps


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
    hosted = 0.0 if candidate.reads_here else found.on_host
    if question.lengths.later_tokens:
        beside, decoding = candidate, pace.decoding(candidate)
        whole_s = decode_s(decoding)
    else:  # whose prompt has been read has ended: no row decodes beside others' prompts
        beside = decoding = candidate.idle()
        whole_s = least_s
    prompts = [(0.0, 0.0)]
    for size in sizes:
        mixed = pace.loads(beside, size, hosted, tiles=False)
        mixed_s = sum(w * sweeps.time(candidate.elsewhere, load).period_s for w, load in mixed)
        mixed_s -= experts_s(decoding.rows, size)
        prompts.append((float(size), max(0.0, mixed_s - whole_s)))
    if candidate.halves:
        return _of_halves(
            question,
            sweeps,
            loads,
            candidate,
            SweepTimes(least_s, device_s, host_s, tuple(prompts[1:])),
        )
    hosted_s = None
    if candidate.has_cohorts and candidate.device_rows and candidate.host_rows:
        hosted, layers = candidate.hosted(), question.model.num_layers
        way = hosted.sweeps_per_hosted_token(layers) / candidate.sweeps_per_hosted_token(layers)
        hosted_s = way * timed_s(hosted)
    return SweepTimes(least_s, device_s, host_s, tuple(prompts[1:]), hosted_s, experts)


def _of_halves(
    question: Question, sweeps: Sweeps, loads: Loads, candidate: Candidate, both: SweepTimes
) -> SweepTimes:
    """Of as much of their token as a sweep is where prompts are read, which one of each token's
    reads by itself; where none are, there is no such sweep.

    Args:
        both: of sweeps in which halves take part.
    """
    layers = question.model.num_layers
    taken = candidate.sweeps_per_hosted_token(layers)
    every = candidate.sweeps_beside_prompts(layers)
    nobody = candidate.between_tokens()

    def longer_s(tokens: float, beside_s: float) -> float:
        load = loads.of(nobody, round(tokens), host_chunk=not candidate.reads_here)
        alone_s = sweeps.time(candidate.elsewhere, load).period_s
        return (taken * beside_s + (every - taken) * alone_s) / every

    part = taken / every
    return SweepTimes(
        part * both.least_s,
        part * both.device_token_s,
        part * both.host_token_s,
        tuple((tokens, longer_s(tokens, beside_s)) for tokens, beside_s in both.prompts),
    )


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
