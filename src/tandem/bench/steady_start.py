"""Start a paced run in its steady state: all requests admitted at once, each where it belongs."""

import random

from tandem.cost.step_prices import StepPrices
from tandem.engine.building.paced import PacedEngine
from tandem.scheduler.proposal import Admission, StepProposal
from tandem.scheduler.rows import UNLIMITED
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.view import SchedulerView
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

DEVICE, HOST = "device", "host"
_SPREAD = 0.2
_FIRST_TOKEN = 3


class SteadyStart:
    """Admits every waiting request whole, then leaves all decisions to `inner`.

    A request's id says where its KV goes: memory alone decides in the engine so far, and it would
    let a request wait for the device although the host has room.
    """

    def __init__(self, inner: Strategy) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The strategy that decides."""
        return self._inner.name

    @property
    def uses_host(self) -> bool:
        """As the inner one."""
        return self._inner.uses_host

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """Admissions as long as there are any."""
        admissions: list[Admission] = []
        budget = view.config.max_num_batched_tokens
        for sequence in view.waiting:
            tokens = len(sequence.tokens)
            if tokens > budget:
                break
            budget -= tokens
            limit = 0 if sequence.request_id.startswith(HOST) else UNLIMITED
            admissions.append(Admission(sequence.request_id, tokens, limit))
        if admissions:
            return StepProposal(admissions=tuple(admissions))
        return self._inner.propose(view, prices)


def fill(engine: PacedEngine, rows: dict[str, int], context: int, max_tokens: int) -> None:
    """Bring requests with contexts spread evenly around `context` to their decode phase.

    Emulated time stands still meanwhile and the host computes nothing.

    Args:
        rows: requests per place, `DEVICE` and `HOST`.
        max_tokens: that each request may still emit; more than the run needs.
    """
    draw = random.Random(0)
    for place, count in rows.items():
        for number in range(count):
            length = int(context * draw.uniform(1 - _SPREAD, 1 + _SPREAD))
            prompt = tuple(_FIRST_TOKEN + (number + i) % 61 for i in range(length))
            params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
            engine.core.add_request(EngineRequest(f"{place}-{number}", prompt, params))
    engine.executor.fast_forward(True)
    waiting = {f"{place}-{n}" for place, count in rows.items() for n in range(count)}
    while waiting:
        waiting -= {output.request_id for output in engine.core.step()}
    engine.executor.fast_forward(False)
