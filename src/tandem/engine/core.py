"""The engine loop: schedule, submit, observe. Synchronous, on one thread, in token ids."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandem.engine.stats import EngineStats
from tandem.engine.stats_collector import StatsCollector
from tandem.plan.program import StepProgram
from tandem.runtime.executor import Executor
from tandem.scheduler.outputs import StepOutputs
from tandem.scheduler.scheduler import Scheduler
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest, RequestOutput

if TYPE_CHECKING:
    from tandem.engine.engine_trace import EngineTrace
    from tandem.runtime.page_worker import PageWorker


_LAST_WRITES_S = 5.0  # less than a parent waits for an engine in a process of its own


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Where the KV blocks of one running request lie.

    Attributes:
        device_blocks_first: leading blocks on the device before the first one on the host.
    """

    device_blocks: int
    host_blocks: int
    device_blocks_first: int

    @property
    def num_blocks(self) -> int:
        """Blocks in both tiers."""
        return self.device_blocks + self.host_blocks


class EngineCore:
    """Requests in, tokens out, over a scheduler and an executor.

    Two loops give equal outputs. The plain one submits a step and waits until everything of it has
    been observed. The overlapped one submits the next step before the last one's tokens are on the
    host; a row's input is then taken from the device's slot table, and a token computed past a
    sequence's end is discarded.

    Args:
        collector: what the engine counts.
        clock: seconds; injected, used for statistics only.
        check: verify conservation after every event (tests).
        release: frees memory that operations in flight may use; called after the executor stopped.
        trace: is told what the loop does, and closed with the engine.
        disk: does the scheduler's jobs for the disk; owned, and closed with the engine.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        collector: StatsCollector,
        *,
        overlap: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        check: bool = False,
        release: Callable[[], None] | None = None,
        trace: "EngineTrace | None" = None,
        disk: "PageWorker | None" = None,
    ) -> None:
        self._trace, self._disk = trace, disk
        self._woken = self._parked = False
        self._scheduler = scheduler
        self._executor = executor
        self._collector = collector
        self._overlap = overlap
        self._clock = clock
        self._check = check
        self._release = release

    def add_request(self, request: EngineRequest) -> None:
        """Accept a request.

        Raises:
            RequestError: it can never be served here; nothing is kept of it.
            OverloadError: the queue is full.
        """
        self._parked = False
        self._scheduler.add(request)
        self._collector.prompt_tokens += len(request.prompt_token_ids)

    def abort(self, request_id: str) -> None:
        """Forget a request; unknown ids are ignored. Its memory is free once nothing names it."""
        self._parked = False
        self._scheduler.abort(request_id)

    def has_work(self) -> bool:
        """True while any request is unfinished or anything is in flight."""
        return self._scheduler.has_work

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on any thread, when `tend` is wanted; `step` then waits for nothing
        that wakes.
        """
        if self._disk is not None:
            self._woken = True
            self._disk.wake_by(wake)

    def is_parked(self) -> bool:
        """True if a step could do nothing before `wake` is called, or a request comes or goes."""
        return self._parked

    def tend(self) -> None:
        """Take in what the disk has done, and give it more to do."""
        if self._disk is None:
            return
        ends = self._disk.poll()
        if ends:
            self._parked = False
            self._scheduler.disk_done(ends)
        self._disk.submit(self._scheduler.disk_jobs())

    def step(self) -> Sequence[RequestOutput]:
        """One iteration: at most one sweep is submitted, and what has happened is taken in.

        Raises:
            EngineDeadError: the executor failed; the engine cannot go on.
        """
        if self._trace is not None:
            self._trace.begin()
        begin = self._clock()
        self.tend()
        programs = self._scheduler.schedule()
        self._collector.scheduler_time_s += self._clock() - begin
        if self._trace is not None:
            self._trace.scheduled(programs, self._scheduler.last_way)
        self._submit(programs)
        if not (programs or self._scheduler.flight.busy) and self._scheduler.has_work:
            self._wait_for_disk()
        if self._overlap:
            outputs = self._observe(wait=not programs and self._scheduler.flight.busy)
        else:
            outputs = self._drain()
        if not self._scheduler.has_work:
            self._collector.idle()
        if self._trace is not None:
            self._trace.end()
        return outputs

    def _wait_for_disk(self) -> None:
        """Nothing can run: all wait for what the disk reads."""
        if self._disk is None or not self._scheduler.is_reading:
            raise EngineDeadError("nothing can run although requests wait: a scheduling fault")
        self._parked = self._woken
        if not self._woken:
            self._disk.wait()

    def _drain(self) -> list[RequestOutput]:
        outputs: list[RequestOutput] = []
        while self._scheduler.flight.busy:
            outputs += self._observe(wait=True)
        return outputs

    def _observe(self, *, wait: bool) -> StepOutputs:
        events = self._executor.poll(wait=wait)
        if self._trace is not None:
            self._trace.lap("wait" if wait else "poll")
        begin = self._clock()
        outputs = self._scheduler.observe(events)
        for cohort_id in self._scheduler.finished_cohorts():
            self._executor.release_cohort(cohort_id)
        late = self._scheduler.late_sampling()
        self._collector.observe(events, outputs)
        self._collector.scheduler_time_s += self._clock() - begin
        if self._trace is not None:
            self._trace.lap("observe", {"events": len(events)} if events else None)
        self._submit(late)
        if self._check:
            self._scheduler.check()
        return outputs

    def _submit(self, programs: list[StepProgram]) -> None:
        for program in programs:
            self._collector.submitted(program)
            self._executor.submit(program)
        if programs and self._trace is not None:
            self._trace.lap("submit")

    @property
    def last_way(self) -> str:
        """What the strategy called its choice in the last sweep; empty if it has only one."""
        return self._scheduler.last_way

    def kv_layout(self) -> dict[str, KVLayout]:
        """Where running requests' KV lies now, by request id."""
        rows, running = self._scheduler.rows, self._scheduler.running
        layouts: dict[str, KVLayout] = {}
        for row in rows.owned().tolist():
            count, host = int(rows.num_blocks[row]), int(rows.num_host_blocks[row])
            tiers = rows.block_tiers[row, :count]
            first = int(tiers.argmax()) if host else count
            layouts[running.sequence_of(row).request_id] = KVLayout(count - host, host, first)
        return layouts

    def stats(self) -> EngineStats:
        """Counters and gauges."""
        return self._collector.stats()

    def _write_rest(self, disk: "PageWorker") -> None:
        """Have written what still waits for it: an engine that ends soon after a prompt would leave
        nothing of it to the next one.
        """
        ends_s = self._clock() + _LAST_WRITES_S
        self.tend()
        while self._scheduler.is_writing and (left_s := ends_s - self._clock()) > 0:
            if not disk.wait(left_s):
                return
            self.tend()

    def close(self) -> None:
        """Drop all requests, let operations in flight end, free everything; give the disk what it
        lacks, within seconds.
        """
        for request_id in self._scheduler.running.ids():
            self._scheduler.abort(request_id)
        if self._disk is not None:
            self._write_rest(self._disk)
            self._disk.close()
            self._disk = None
        self._executor.close()
        if self._release is not None:
            self._release()
            self._release = None
        if self._trace is not None:
            self._trace.close()
