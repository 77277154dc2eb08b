"""The engine loop of an offline plan: programs over blocks, one after the other."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tandem.engine.block_stats import BlockStats
from tandem.engine.stats import EngineStats
from tandem.runtime.executor import Executor
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.spec.request import EngineRequest, RequestOutput

if TYPE_CHECKING:
    from tandem.engine.engine_trace import EngineTrace

_LOG = logging.getLogger(__name__)


class BlockCore:
    """Requests in, tokens out, as `EngineCore`, over a block scheduler and an executor.

    Args:
        check: verify conservation after every step (tests).
        release: frees memory that operations in flight may use; called after the executor stopped.
        trace: is told what the loop does, and closed with the engine.

    Attributes:
        scheduler: of its blocks. stats_of_blocks: what counts its work.
    """

    def __init__(
        self,
        scheduler: BlockScheduler,
        executor: Executor,
        stats: BlockStats,
        *,
        check: bool = False,
        release: Callable[[], None] | None = None,
        trace: "EngineTrace | None" = None,
    ) -> None:
        self._trace = trace
        self.scheduler = scheduler
        self._executor = executor
        self.stats_of_blocks = stats
        self._check = check
        self._release = release

    def add_request(self, request: EngineRequest) -> None:
        """Accept a request.

        Raises:
            RequestError: it can never be served here; nothing is kept of it.
            OverloadError: the queue is full.
        """
        self.scheduler.add(request)
        self.stats_of_blocks.counts.prompt_tokens += len(request.prompt_token_ids)

    def abort(self, request_id: str) -> None:
        """Forget a request; unknown ids are ignored."""
        self.scheduler.abort(request_id)

    def has_work(self) -> bool:
        """True while any request is unfinished or tokens are awaited."""
        return self.scheduler.has_work

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Nothing happens beside the steps."""

    def is_parked(self) -> bool:
        """False: a step always has something to do."""
        return False

    def tend(self) -> None:
        """Nothing to do."""

    def step(self) -> list[RequestOutput]:
        """One program over prompts, or a token of every sequence of the block.

        Raises:
            EngineDeadError: the executor failed; the engine cannot go on.
        """
        trace = self._trace
        if trace is not None:
            trace.begin()
        said = len(self.scheduler.replans)
        programs = self.scheduler.schedule()
        for line in self.scheduler.replans[said:]:
            _LOG.warning(line)
        if trace is not None:
            trace.scheduled(programs, "")
        for program in programs:
            self.stats_of_blocks.submitted(program)
            self._executor.submit(program)
        if trace is not None:
            trace.lap("submit")
        outputs: list[RequestOutput] = []
        while self.scheduler.is_busy:
            events = self._executor.poll(wait=True)
            if trace is not None:
                trace.lap("wait")
            outputs += self.scheduler.observe(events)
            if trace is not None:
                trace.lap("observe", {"events": len(events)})
        self.stats_of_blocks.generated(outputs)
        if not self.scheduler.has_work:
            self.stats_of_blocks.idle()
        if trace is not None:
            trace.end()
        if self._check:
            self.scheduler.check()
        return outputs

    def stats(self) -> EngineStats:
        """Counters and gauges."""
        return self.stats_of_blocks.read()

    def close(self) -> None:
        """Drop all requests, let operations in flight end, free everything."""
        self.release()
        if self._trace is not None:
            self._trace.close()

    def release(self) -> None:
        """The same, but for the trace, which another engine goes on with."""
        self.scheduler.abort_all()
        self._executor.close()
        if self._release is not None:
            self._release()
            self._release = None
