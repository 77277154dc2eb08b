"""A plan as text: what was asked, tiers and resources as bars, predictions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tandem.cli.plan_words import described
from tandem.cli.usual_type import SLOW
from tandem.planner.answer import Answer
from tandem.planner.footprint import TierUse
from tandem.planner.question import Question
from tandem.planner.rates import Rates
from tandem.spec.dtype import DType
from tandem.spec.float_range import needs_range
from tandem.spec.parameters import num_parameters
from tandem.spec.units import format_duration, format_figure, format_size
from tandem.spec.workload import Workload

if TYPE_CHECKING:  # of requests that come over time
    from tandem.planner.arrivals import Arrivals

_WIDTH = 40
_FLAT = 0.005
"""Relative differences below this are not worth a word."""
_OTHER = 0.05
"""Of the time between tokens out of step, what is told as another one: it is predicted no finer."""


def plan_text(
    model: str, workload: Workload, answer: Answer, basis: Sequence[str]
) -> Iterator[str]:
    """What was asked, and the plan: all that is known of it before anything beside it is.

    Args:
        basis: which numbers are measured and which assumed.
    """
    yield from _question(model, workload, answer)
    yield ""
    yield from _plan(answer, basis)


def better_plan_text(answer: Answer, basis: Sequence[str]) -> Iterator[str]:
    """Likewise, of a plan that takes the place of one that was told; below it."""
    yield ""
    yield "A faster plan, or as fast a simpler one, was found beside this one. It takes its place:"
    yield ""
    yield from _plan(answer, basis)


def _plan(answer: Answer, basis: Sequence[str]) -> Iterator[str]:
    yield from _memory(answer)
    yield ""
    yield from basis
    yield from answer.extrapolated
    yield from _prediction(answer)
    yield ""
    yield from _limits(answer)


def question_text(model: str, workload: Workload, question: Question) -> Iterator[str]:
    """What was asked: model, machine, requests; first, if another type were far faster there."""
    lengths = question.lengths
    yield from _slow_type(question)
    billions = num_parameters(question.model) / 1e9
    yield f"{model}: {billions:.1f} billion parameters, {question.precision}"
    yield f"on {question.hardware.name}"
    yield (
        f"{workload.name}: {lengths.prompt_tokens:.0f} tokens in, "
        f"{lengths.generated_tokens:.0f} out in the mean, {lengths.longest_tokens} at most"
    )
    yield from (f"note: {note}" for note in workload.notes)


def _question(model: str, workload: Workload, answer: Answer) -> Iterator[str]:
    question = answer.question
    yield from question_text(model, workload, question)
    if question.precision.holds_floats:
        yield (
            "note: the checkpoint's FP8 stays in a byte, as Triton's kernels on a GPU read it; the "
            "CPU's do not, so layers without room are streamed (--quantization none: all wider)"
        )
    elif question.precision.quantized:
        yield "note: weights in few bits change what the model says; the planner never chooses them"


def _slow_type(question: Question) -> Iterator[str]:
    peaks = question.hardware.accelerator.flops_per_s
    dtype = question.precision.activations
    fastest = max(peaks, key=lambda kind: peaks[kind])
    if peaks[dtype] * SLOW >= peaks[fastest]:
        return
    faster = (
        f"this machine computes {peaks[fastest] / peaks[dtype]:.1f} times as fast in {fastest} as "
        f"in {dtype}, {peaks[fastest] / 1e12:.3g} TFLOP/s instead of {peaks[dtype] / 1e12:.3g}"
    )
    if fastest is DType.FLOAT16 and needs_range(question.model):
        yield f"note: {faster}, but this model's activations exceed float16's range"
    elif dtype is DType.FLOAT32:
        yield (
            f"With the card itself, try --dtype {fastest}: {faster}. An emulated accelerator "
            "executes float32 alone, for which this plan is:"
        )
    else:
        yield f"Try --dtype {fastest}: {faster}. This plan is for {dtype}:"


def _memory(answer: Answer) -> Iterator[str]:
    device = "the host's memory" if answer.question.host_only else "the accelerator"
    steps = f"in steps of {answer.question.max_num_batched_tokens} tokens"
    if answer.spare_bytes >= 0:
        spare = format_size(answer.spare_bytes)
        yield f"Fits {device}, with {spare} to spare for more KV {steps}."
    else:
        yield (
            f"Does not fit {device}: {format_size(-answer.spare_bytes)} too large with one "
            f"request's KV {steps}."
        )
    yield f"Best: {described(answer.question, answer.chosen)}"
    yield ""
    if answer.question.host_only:
        yield from _tier("host", answer.device)
        return
    yield from _tier("accelerator", answer.device)
    yield from _tier("host", answer.host)


def _tier(name: str, use: TierUse) -> Iterator[str]:
    parts = (
        ("█", "weights", use.weights_bytes),
        ("▓", "workspace", use.workspace_bytes),
        ("▒", "KV", use.kv_bytes),
        ("·", "free", max(0, use.free_bytes)),
    )
    yield f"{name:<12}{_stack(use.capacity_bytes, parts)}  {format_size(use.capacity_bytes)}"
    named = (f"{mark} {what} {format_size(size)}" for mark, what, size in parts if size)
    yield f"{'':<12}{'  '.join(named)}"


def _stack(capacity: int, parts: tuple[tuple[str, str, int], ...]) -> str:
    """A bar of fixed width; what is there at all gets a mark at least."""
    bar, filled = "", 0.0
    for mark, _, size in parts[:-1]:
        filled += size / capacity * _WIDTH
        length = max(round(filled) - len(bar), 1 if size else 0)
        bar += mark * length
    return bar[:_WIDTH].ljust(_WIDTH, parts[-1][0])


def _tpots(answer: Answer, rates: Rates, steady: Rates) -> Iterator[str]:
    yield f"  time per output token  {_tpot(answer, rates)}"
    if answer.arrivals is None and abs(rates.worst_tpot_s / steady.worst_tpot_s - 1) > _OTHER:
        yield f"{'':<25}{_tpot(answer, steady)} once requests are out of step"


def _prediction(answer: Answer) -> Iterator[str]:
    steady, lengths = answer.chosen.prediction.rates, answer.question.lengths
    arrivals, rates = answer.arrivals, answer.seen
    if arrivals is not None:
        yield from _arrivals(arrivals, steady.tokens_per_s / lengths.generated_tokens)
        yield from _light_load(answer, arrivals)
    request = _by_lane(answer.main_request_s, answer.cohort_request_s)
    one = " (one request at a time)" if answer.question.objective == "latency" else ""
    most, given = answer.chosen.prediction.bound_tokens_per_s, throughput(answer)
    turn = f"{format_duration(rates.ttft_s)}{',' * (arrivals is None)} once it is a request's turn"
    if arrivals is not None:
        turn = f"{_from_arrival(arrivals)}, {turn}"
    yield f"  time to first token    {turn}"
    if lengths.later_tokens:
        yield from _tpots(answer, rates, steady)
    yield f"  a mean request         {request}"
    close = most < given * (1 + _FLAT) or arrivals is not None
    two = is_job(answer)
    kept_up = " steady" if two else ""
    bound = "" if close else f", at most {format_figure(most)} with this placement"
    yield f"  throughput             {format_figure(given)} tokens/s{kept_up}{one}{bound}"
    tokens = lengths.requests * lengths.generated_tokens
    of_job = f", {format_figure(answer.job_tokens_per_s)} tokens/s of the job" if two else ""
    yield f"  all {lengths.requests} requests{'':<6}".ljust(25) + (
        f"{format_duration(answer.job_s)} for {tokens:.0f} output tokens{of_job}"
    )


def _tpot(answer: Answer, rates: Rates) -> str:
    main_s = None if answer.main_request_s is None else rates.tpot_s
    return _by_lane(main_s, rates.slow_tpot_s)


def _by_lane(main_s: float | None, cohort_s: float | None) -> str:
    """Of requests that every sweep serves, and of those in cohorts, where there are any."""
    parts = [] if main_s is None else [format_duration(main_s)]
    if cohort_s is not None:
        parts.append(f"{format_duration(cohort_s)} in cohorts")
    return "; ".join(parts)


def is_job(answer: Answer) -> bool:
    """Whether a job's tokens per second are told beside those of its steady state."""
    return answer.arrivals is None and bool(answer.seen.edges_s)


def throughput(answer: Answer) -> float:
    """Tokens per second while all places are taken, or as requests come."""
    if answer.arrivals is None:
        return answer.chosen.prediction.rates.tokens_per_s
    return answer.arrivals.tokens_per_s


def _arrivals(arrivals: "Arrivals", most_per_s: float) -> Iterator[str]:
    each, most = format_figure(arrivals.requests_per_s), format_figure(most_per_s)
    coming = f"  arriving               {each} requests/s in the mean"
    if arrivals.keeps_up:
        yield f"{coming}, {arrivals.rows} at once; up to {most} requests/s can be served"
    else:
        yield f"{coming}, but {most} are served: they queue, and a place comes late"


def _from_arrival(arrivals: "Arrivals") -> str:
    """To the first token. Of requests that queue it is what these see, and no steady state's."""
    from_arrival = f"{format_duration(arrivals.ttft_s)} from its arrival"
    if not arrivals.keeps_up:
        return f"{from_arrival}, and longer the more requests there are"
    return f"at least {from_arrival}" if arrivals.ttft_is_least else from_arrival


def _light_load(answer: Answer, arrivals: "Arrivals") -> Iterator[str]:
    """Plans are made for all places taken, which costs the few that come time per token."""
    places = answer.chosen.candidate.rows
    light = arrivals.keeps_up and arrivals.rows < places / 2
    if answer.question.tpot_bound_s is None and light:
        yield f"{'':<25}the plan is made for {places} at once; under so light a load,"
        yield f"{'':<25}--tpot-bound is what limits the time per token"


def _limits(answer: Answer) -> Iterator[str]:
    prediction = answer.chosen.prediction
    taken = "" if answer.arrivals is None else " with all places taken"
    yield (
        f"A sweep{taken}, {format_duration(prediction.decode.period_s)} if it only decodes; "
        f"{prediction.rates.prefill_share:.0%} read prompts as well"
    )
    alone = answer.question.host_only and not answer.chosen.candidate.on_disk
    if alone:
        yield "The processor and its memory are all there is, and busy all the time"
    for name, share in () if alone else prediction.busy:
        length = round(min(1.0, share) * _WIDTH)
        yield f"  {name:<24}{'█' * length:·<{_WIDTH}} {share:4.0%}"
    share = f"{prediction.bottleneck[1]:.0%}"
    busiest = " and ".join(name for name, part in prediction.busy if f"{part:.0%}" == share)
    waits = "" if prediction.bottleneck[1] > 0.9 else "; the rest is waiting for one another"
    if not alone:
        yield f"Limited by: {busiest}, busy {share} of the time{waits}"
