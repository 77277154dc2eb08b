"""What a run amounts to: latencies, rates, and how busy everything was."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.planner.fluid.queues import ACCEL, CPU, D2H, DISK, H2D
from tandem.simulator.latencies import Latencies, Percentiles
from tandem.simulator.program_queues import ProgramQueues
from tandem.simulator.record import Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run.

    Attributes:
        ttft: from a request's arrival to its first token, waiting included.
        ttft_kept: share of the requests of which it was within the bound; None without one.
        tpot: between tokens after the first, a mean of each request; None if no request has two.
        latency: from a request's arrival to its last token.
        duration_s: to the last token of all.
        tokens_per_s: output tokens over all of it. steady_tokens_per_s: over its middle half.
        mean_running: requests that had arrived and not ended, a mean over time.
        busy: shares of the time until nothing is in flight; of host memory, of its bytes per
            second. Without an accelerator, of the host's processor in its place; a disk that
            nothing was read from is left out.
        hidden_share: of the time in which the CPU attended, that in which the accelerator worked
            as well; None if it never attended.
        steps: sweeps. skipped_steps: those of them that did not go through the scheduler.
    """

    requests: int
    output_tokens: int
    ttft: Percentiles
    ttft_kept: float | None
    tpot: Percentiles | None
    latency: Percentiles
    duration_s: float
    tokens_per_s: float
    steady_tokens_per_s: float
    mean_running: float
    busy: dict[str, float]
    hidden_share: float | None
    preemptions: int
    steps: int
    skipped_steps: int


def outcome_of(
    record: Record,
    queues: ProgramQueues,
    dram_bytes_per_s: float,
    preemptions: int,
    steps: int,
    skipped_steps: int,
    ttft_bound_s: float | None = None,
    *,
    host_only: bool = False,
) -> Outcome:
    """Sum up a run that has ended."""
    found = Latencies.of(record.requests, record.first_s, record.finish_s, record.tokens)
    ttfts = found.ttft_s
    kept = None if ttft_bound_s is None else sum(s <= ttft_bound_s for s in ttfts) / len(ttfts)
    duration_s = max(record.finish_s.values())
    tokens = sum(record.tokens.values())
    cpu_s = queues.busy_s[CPU]
    # loads for a sweep that does not come may end after the last token
    whole_s = max(duration_s, queues.now_s)
    return Outcome(
        requests=len(record.requests),
        output_tokens=tokens,
        ttft=Percentiles.of(ttfts),
        ttft_kept=kept,
        tpot=Percentiles.of(found.tpot_s) if found.tpot_s else None,
        latency=Percentiles.of(found.latency_s),
        duration_s=duration_s,
        tokens_per_s=tokens / duration_s,
        steady_tokens_per_s=_steady(record.progress, duration_s),
        mean_running=sum(found.latency_s) / duration_s,
        busy=_busy(queues, whole_s, dram_bytes_per_s, host_only=host_only),
        hidden_share=queues.hidden_s / cpu_s if cpu_s else None,
        preemptions=preemptions,
        steps=steps,
        skipped_steps=skipped_steps,
    )


def _busy(
    queues: ProgramQueues, whole_s: float, dram_bytes_per_s: float, *, host_only: bool
) -> dict[str, float]:
    accelerator = queues.busy_s[ACCEL] / whole_s
    found = {
        "accelerator": accelerator,
        "CPU": queues.busy_s[CPU] / whole_s,
        "link to the accelerator": queues.busy_s[H2D] / whole_s,
        "link to the host": queues.busy_s[D2H] / whole_s,
    }
    if host_only:  # it is the device
        found = {"CPU": accelerator}
    found["host memory"] = queues.dram_bytes / whole_s / dram_bytes_per_s
    if queues.busy_s[DISK]:
        found["disk"] = queues.busy_s[DISK] / whole_s
    return found


def _steady(progress: Sequence[tuple[float, int]], duration_s: float) -> float:
    """Tokens per second over the middle half, where rows neither fill up nor run out."""
    times = [time_s for time_s, _ in progress]
    first = bisect_left(times, duration_s / 4)
    last = max(bisect_left(times, duration_s * 3 / 4), first + 1)
    if last >= len(progress):
        return progress[-1][1] / duration_s
    (begin_s, before), (end_s, after) = progress[first], progress[last]
    return (after - before) / (end_s - begin_s)
