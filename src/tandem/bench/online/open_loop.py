"""Requests that come when they come, whether the engine keeps up or not."""

from collections import Counter
from dataclasses import dataclass

from tandem.bench.online.requests import request_of
from tandem.engine.core import EngineCore
from tandem.runtime.paced.executor import PacedClock
from tandem.simulator.latencies import Latencies
from tandem.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Served:
    """All requests of a workload, from the first arrival to the last token.

    Attributes:
        tokens_per_s: output tokens over all of it.
    """

    latencies: Latencies
    tokens_per_s: float


def serve(core: EngineCore, workload: Workload, clock: PacedClock) -> Served:
    """Give the engine each request at its time; all end at their lengths.

    A request that comes while the engine waits for a sweep is seen when that wait ends, as by the
    engine's own loop.
    """
    begin_s = clock.now()
    first_s: dict[str, float] = {}
    finish_s: dict[str, float] = {}
    tokens: Counter[str] = Counter()
    requests, arrived = workload.requests, 0
    while arrived < len(requests) or core.has_work():
        now_s = clock.now() - begin_s
        while arrived < len(requests) and requests[arrived].arrival_s <= now_s:
            core.add_request(request_of(arrived, requests[arrived]))
            arrived += 1
        if not core.has_work():
            clock.wait(begin_s + requests[arrived].arrival_s)
            continue
        outputs = core.step()
        now_s = clock.now() - begin_s
        for output in outputs:
            if output.token_ids:
                first_s.setdefault(output.request_id, now_s)
                tokens[output.request_id] += len(output.token_ids)
            if output.finish_reason is not None:
                finish_s[output.request_id] = now_s
    latencies = Latencies.of(requests, first_s, finish_s, tokens)
    return Served(latencies, tokens.total() / max(finish_s.values()))
