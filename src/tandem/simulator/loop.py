"""The engine's loop in virtual time: arrivals, schedule, submit, observe."""

from collections.abc import Sequence

from tandem.planner.fluid.queues import NEVER
from tandem.scheduler.scheduler import Scheduler
from tandem.simulator.executor import SimulatedExecutor
from tandem.simulator.record import Record
from tandem.simulator.skip import Skipper
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.workload import RequestShape


class Loop:
    """Serves the record's requests as they come, with as many sweeps in flight as the plan says.

    Args:
        prompt_token: what all prompts consist of.
        skipper: takes runs of steps that only decode; None: the scheduler takes every step.

    Attributes:
        next_arrival_s: of the first request that has not come yet.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: SimulatedExecutor,
        record: Record,
        prompt_token: int,
        skipper: Skipper | None,
    ) -> None:
        self._scheduler, self._executor, self._record = scheduler, executor, record
        self._prompt_token = prompt_token
        self._skipper = skipper
        self.skipped_steps = 0
        self._arrived = 0
        self.next_arrival_s = self._arrival_s()
        self._params: dict[int, SamplingParams] = {}  # by tokens: checking them takes longer

    def run(self) -> None:
        """Until the last request has ended."""
        while self.step():
            pass

    def add(self, shapes: Sequence[RequestShape]) -> None:
        """More requests, none of which comes before those there are."""
        self._record.requests += tuple(shapes)
        self.next_arrival_s = self._arrival_s()

    def _arrival_s(self) -> float:
        requests = self._record.requests
        return requests[self._arrived].arrival_s if self._arrived < len(requests) else NEVER

    def step(self) -> bool:
        """Submit what can be, else go on to the next event or arrival; False when all is done."""
        scheduler, executor = self._scheduler, self._executor
        self._take_arrivals()
        if scheduler.may_submit and self._submitted():
            return True
        events = executor.run_until(self.next_arrival_s)
        if not events:
            more = self.next_arrival_s < NEVER
            assert more or not scheduler.has_work, "nothing can run"
            self._take_arrivals()
            return more
        self._record.observe(executor.now_s, scheduler.observe(events))
        for cohort_id in scheduler.finished_cohorts():
            executor.release_cohort(cohort_id)
        return True

    def _submitted(self) -> bool:
        """Take a run of steps, or submit what there is; False if there is nothing."""
        proposed = None
        if self._skipper is not None:
            skipped = self._skipper.skip(self.next_arrival_s)
            if skipped:
                self.skipped_steps += skipped
                return True
            proposed = self._skipper.proposed
        programs = self._scheduler.schedule(proposed)
        for program in programs:
            self._executor.submit(program)
        return bool(programs)

    def _take_arrivals(self) -> None:
        requests = self._record.requests
        while self.next_arrival_s <= self._executor.now_s:
            shape = requests[self._arrived]
            prompt = (self._prompt_token,) * shape.prompt_tokens
            params = self._params_of(shape.generated_tokens)
            # if it has come during a run of steps that were skipped, that was before now
            request = EngineRequest(str(self._arrived), prompt, params)
            self._scheduler.add(request, arrived_s=shape.arrival_s)
            self._arrived += 1
            self.next_arrival_s = self._arrival_s()

    def _params_of(self, tokens: int) -> SamplingParams:
        known = self._params.get(tokens)
        if known is None:
            # nothing is drawn: the seed is of no consequence, but one would be derived
            known = self._params[tokens] = SamplingParams(max_tokens=tokens, seed=0)
        return known
