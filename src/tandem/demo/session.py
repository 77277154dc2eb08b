"""Run the demo's requests through an engine and watch where their KV lies."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tandem.demo.workload import DemoRequest
from tandem.engine.core import EngineCore, KVLayout
from tandem.engine.stats import EngineStats
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams


@dataclass(slots=True)
class Watched:
    """A request as the demo shows it.

    Attributes:
        layout: tiers of its blocks when it held most of them.
    """

    request: DemoRequest
    token_ids: list[int] = field(default_factory=list[int])
    layout: KVLayout | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run."""

    watched: list[Watched]
    stats: EngineStats


OnStep = Callable[[list[Watched]], None]


def run_session(core: EngineCore, requests: list[DemoRequest], on_step: OnStep) -> Outcome:
    """Submit all requests at once, greedily decoded, and step until they have ended."""
    watched = {str(i): Watched(request) for i, request in enumerate(requests)}
    for request_id, entry in watched.items():
        params = SamplingParams(max_tokens=entry.request.max_tokens, temperature=0.0)
        core.add_request(EngineRequest(request_id, entry.request.token_ids, params))
    while core.has_work():
        outputs = core.step()
        for request_id, layout in core.kv_layout().items():
            _keep_largest(watched[request_id], layout)
        for output in outputs:
            watched[output.request_id].token_ids += output.token_ids
            watched[output.request_id].finish_reason = output.finish_reason
        if outputs:
            on_step(list(watched.values()))
    return Outcome(list(watched.values()), core.stats())


def _keep_largest(entry: Watched, layout: KVLayout) -> None:
    if entry.layout is None or layout.num_blocks >= entry.layout.num_blocks:
        entry.layout = layout
