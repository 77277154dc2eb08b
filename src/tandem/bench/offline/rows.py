"""Rows of the record, and lines for people, of what was executed in a cell."""

from collections.abc import Iterator
from functools import partial

from tandem.bench.offline.cut_ratios import describe_ratios
from tandem.bench.offline.job import Executed
from tandem.bench.offline.plans import AUTO, PlannedJob
from tandem.bench.offline.split import PUBLISHED, SplitRun
from tandem.bench.offline.suite import OfflineOutcome
from tandem.bench.records import BenchRow
from tandem.planner.offline.ceiling import BlockCeiling


def rows_of(outcome: OfflineOutcome) -> tuple[BenchRow, ...]:
    """Rows of the common record format."""
    jobs = [job for job in outcome.planned.jobs if job.option]
    return (
        *(row for job in jobs for row in _policy_rows(outcome, job)),
        *(row for run in outcome.splits for row in _split_rows(outcome, run)),
    )


def _policy_rows(outcome: OfflineOutcome, job: PlannedJob) -> Iterator[BenchRow]:
    assert job.option is not None
    executed, auto = outcome.executed[job.policy], outcome.executed[AUTO]
    row = partial(BenchRow, str(outcome.cell), f"virtual {job.policy}")
    ceiling, rates = outcome.planned.ceiling, job.option.prediction.rates
    most = None if ceiling is None else ceiling.tokens_per_s
    yield row("throughput", executed.tokens_per_s, "tokens/s", most)
    yield row("predicted over executed", rates.tokens_per_s / executed.tokens_per_s, "ratio", 1.0)
    yield row("predicted pass over executed", rates.pass_s / executed.pass_s, "ratio", 1.0)
    yield row("auto over it", auto.tokens_per_s / executed.tokens_per_s, "ratio", 1.0)
    brought = executed.report.brought_bytes
    yield row(
        "link to the accelerator busy", link_share(outcome, brought, executed.wall_s), "share", 1.0
    )
    yield row("accelerator busy", executed.report.accel_busy, "share", 1.0)
    yield row("CPU busy", executed.report.cpu_busy, "share", 1.0)
    yield from _busy_rows(row, outcome, executed)


def _split_rows(outcome: OfflineOutcome, run: SplitRun) -> Iterator[BenchRow]:
    row = partial(BenchRow, str(outcome.cell), f"virtual divided, {run.name}")
    ceiling = outcome.planned.ceiling
    most = None if ceiling is None else ceiling.tokens_per_s
    yield row("throughput", run.executed.tokens_per_s, "tokens/s", most)
    yield from _busy_rows(row, outcome, run.executed)


def _busy_rows(
    row: "partial[BenchRow]", outcome: OfflineOutcome, executed: Executed
) -> Iterator[BenchRow]:
    by_bytes = link_share(outcome, executed.passes_bytes, executed.passes_s)
    yield row("link busy by bytes, of passes", by_bytes, "share", 1.0)
    yield row("link queues at work, of passes", executed.link_share, "share", 1.0)
    yield row("CPU and link both busy, of passes", executed.both_share, "share", 1.0)


def link_share(outcome: OfflineOutcome, brought_bytes: float, within_s: float) -> float:
    """Bytes that crossed over what the probed link would bring in that time; programs have nothing
    cross that their plan does not need.
    """
    rate = outcome.planned.question.hardware.link.h2d_bytes_per_s
    return brought_bytes / (rate * within_s) if within_s else 0.0


def describe(outcome: OfflineOutcome) -> list[str]:
    """Lines for people: what was planned, and what came of it."""
    lines = [str(outcome.cell), *describe_ratios(outcome.cell)]
    ceiling = outcome.planned.ceiling
    if ceiling is not None:
        lines.append(f"  no plan exceeds {ceiling.tokens_per_s:.1f} tokens/s: {_shares(ceiling)}")
    for job in outcome.planned.jobs:
        lines += list(_lines(outcome, job)) if job.option else [f"  {job.policy}: cannot run this"]
    for run in outcome.splits:
        executed = run.executed
        lines.append(
            f"  divided between link and CPU, {run.name}: {executed.tokens_per_s:.1f} tokens/s, "
            f"both busy in {executed.both_share:.0%} of passes (Park & Egger: {PUBLISHED:.0%})"
        )
        lines.append(f"    {run.candidate.describe(outcome.cell.model.num_layers)}")
    return lines


def _shares(ceiling: BlockCeiling) -> str:
    named = (
        (ceiling.resident, "KV on the accelerator"),
        (ceiling.crossing, "streamed"),
        (ceiling.recomputed, "streamed with the prompt recomputed"),
        (ceiling.cpu, "attended on the CPU"),
    )
    homes = ", ".join(f"{share:.0%} {what}" for share, what in named if share > 0)
    rows = f"{round(ceiling.rows, 1):g} sequences"
    return f"{rows}, {ceiling.streamed:.0%} of the layers streamed; {homes}"


def _lines(outcome: OfflineOutcome, job: PlannedJob) -> Iterator[str]:
    assert job.option is not None
    executed, ceiling = outcome.executed[job.policy], outcome.planned.ceiling
    rates, report = job.option.prediction.rates, executed.report
    reached, auto = executed.tokens_per_s, outcome.executed[AUTO].tokens_per_s
    of_most = "" if ceiling is None else f" ({reached / ceiling.tokens_per_s:.0%})"
    of_job = link_share(outcome, report.brought_bytes, executed.wall_s)
    of_passes = link_share(outcome, executed.passes_bytes, executed.passes_s)
    yield (
        f"  {job.policy:21} {reached:9.1f} tokens/s{of_most}, predicted {rates.tokens_per_s:9.1f} "
        f"({rates.tokens_per_s / reached - 1:+.1%}); auto {auto / reached:.2f}x"
    )
    yield f"    {job.option.candidate.describe(outcome.cell.model.num_layers)}"
    yield (
        f"    {executed.refills} times prompts, {executed.prompts_s:.1f} s (predicted "
        f"{rates.blocks} x {rates.prefill_s:.1f}); {executed.passes} passes of "
        f"{executed.rows:.0f}, {executed.pass_s:.3f} s each (predicted {rates.pass_s:.3f})"
    )
    yield (
        f"    link {of_job:.0%} busy by bytes, {of_passes:.0%} in passes, where its queues work "
        f"for {executed.link_share:.0%} and CPU and link at once for {executed.both_share:.0%}; "
        f"accelerator {report.accel_busy:.0%}, CPU {report.cpu_busy:.0%}; shares changed "
        f"{executed.share_changes} times"
    )
    for line in executed.replans:
        yield f"    {line}"
