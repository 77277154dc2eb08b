"""What a paced run has measured since its window began."""

from tandem.plan.program import OpKind, Part, Queue
from tandem.runtime.paced.host import Aliasing
from tandem.runtime.paced.ledger import Span
from tandem.runtime.paced.report import Lateness, PacedReport, judge, percentile_95

_STAGES = (Part.PRE, Part.POST)
_TO_ACCELERATOR = (Queue.H2D, Queue.WEIGHTS)


class Gauges:
    """Sums over resolved operations, and lateness samples.

    Args:
        aliasing: of the host's pages.
        contention: whether copies and the CPU share the host's memory.
    """

    def __init__(self, aliasing: Aliasing, *, contention: bool) -> None:
        self._aliasing, self._contention = aliasing, contention
        self.begin(0.0, 0.0)

    def begin(self, now_s: float, worked_s: float) -> None:
        """Start a window.

        Args:
            worked_s: processor time of the scheduler's thread so far, waiting excluded.
        """
        self._begin_s, self._worked_s = now_s, worked_s
        self._busy_s = dict.fromkeys(Queue, 0.0)
        self._stage_s, self._num_stages = 0.0, 0
        self._most_read, self._brought_bytes = 0, 0.0
        self.lateness = Lateness()

    def resolved(self, span: Span) -> None:
        """An operation's start and end are known."""
        op, duration_s = span.entry.op, span.end_s - span.start_s
        if span.end_s <= self._begin_s:
            return
        joined = op.joins is None or span.entry.program.guards.get(op.joins, True)
        if joined:
            self._busy_s[op.queue] += duration_s
        if op.queue in _TO_ACCELERATOR:
            self._brought_bytes += span.moved_bytes
        if op.kind is OpKind.STAGE and op.part in _STAGES and duration_s > 0:
            self._stage_s += duration_s
            self._num_stages += 1

    def attended(self, read_bytes: int) -> None:
        """A host attention read so many bytes of one set of pages."""
        self._most_read = max(self._most_read, read_bytes)

    def report(self, now_s: float, worked_s: float) -> PacedReport:
        """The window so far; `worked_s` as in `begin`."""
        wall_s = max(now_s - self._begin_s, 1e-9)
        busy_share = max(0.0, worked_s - self._worked_s) / wall_s
        stage_s = self._stage_s / max(1, self._num_stages)
        read = self._most_read * self._aliasing.sets
        sizes = (read, self._aliasing.cache_bytes, self._aliasing.wanted_bytes)
        reasons = judge(self.lateness, stage_s, busy_share, *sizes)
        return PacedReport(
            valid=not reasons,
            reasons=reasons,
            wall_s=wall_s,
            poll_lateness_p95_s=percentile_95(self.lateness.poll),
            waking_p95_s=percentile_95(self.lateness.waking),
            submit_lateness_p95_s=percentile_95(self.lateness.submit),
            start_lateness_p95_s=percentile_95(self.lateness.start),
            stage_s=stage_s,
            busy_share=busy_share,
            accel_busy=self._busy_s[Queue.ACCEL] / wall_s,
            h2d_busy=self._busy_s[Queue.H2D] / wall_s,
            d2h_busy=self._busy_s[Queue.D2H] / wall_s,
            weights_busy=self._busy_s[Queue.WEIGHTS] / wall_s,
            cpu_busy=self._busy_s[Queue.CPU] / wall_s,
            brought_bytes=self._brought_bytes,
            contention="modelled" if self._contention else "none",
            host_sets=self._aliasing.sets,
            host_distinct_bytes=self._aliasing.distinct_bytes,
            host_read_bytes=read,
            cache_bytes=self._aliasing.cache_bytes,
        )
