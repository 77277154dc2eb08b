"""Drive an engine: requests that arrive and are aborted at given steps, to completion."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.engine.clients.driver import Core
from tandem.spec.request import EngineRequest, FinishReason, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Script:
    """What happens from outside.

    Attributes:
        arrivals: by step (from 0), the requests added before it.
        aborts: by step, the ids aborted before it; those not there (yet, or any more) are ignored.
    """

    arrivals: Mapping[int, Sequence[EngineRequest]]
    aborts: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])

    @staticmethod
    def at_once(requests: Sequence[EngineRequest]) -> "Script":
        """All requests before the first step."""
        return Script({0: requests})

    @property
    def requests(self) -> list[EngineRequest]:
        """All of them."""
        return [request for group in self.arrivals.values() for request in group]

    @property
    def last_step(self) -> int:
        """The last step before which something happens."""
        return max([*self.arrivals, *self.aborts], default=0)


@dataclass(slots=True)
class Generated:
    """Everything an engine said about one request."""

    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None
    cached_tokens: int = 0
    arrived: bool = False
    aborted: bool = False

    @property
    def under_way(self) -> bool:
        """Accepted, and neither ended nor aborted."""
        return self.arrived and self.finish_reason is None and not self.aborted


class Hang(AssertionError):  # noqa: N818 - what it is, is no error of Python's
    """The engine did not finish within its bound."""


def max_steps(script: Script, num_layers: int) -> int:
    """Most steps that any legal run may take.

    A step submits a sweep, takes in events, or does both. A sweep computes a token of some row, or
    moves a cohort on by a layer, or finds a cohort not ready; the exact executor refuses three of
    ten joins and ends, on average, two operations per step, of which a sweep has at most eight per
    layer and lane. With N tokens in all, preemption may have each computed again for each of R
    requests ahead of it, but for few of them: a factor of 4 is granted.
    """
    tokens = sum(
        len(request.prompt_token_ids) + (request.sampling.max_tokens or 0)
        for request in script.requests
    )
    return script.last_step + 200 + 4 * 8 * (num_layers + 1) * tokens


def run(
    core: Core, script: Script, *, steps: int, after_step: Callable[[], None] = lambda: None
) -> dict[str, Generated]:
    """Run a script to its end; returns what each request got.

    Raises:
        Hang: more than `steps` steps.
    """
    results = {request.request_id: Generated() for request in script.requests}
    step = 0
    while core.has_work() or step <= script.last_step:
        if step > steps:
            raise Hang(f"not finished after {steps} steps: {core.stats()}")
        for request in script.arrivals.get(step, ()):
            core.add_request(request)
            results[request.request_id].arrived = True
        for request_id in script.aborts.get(step, ()):
            results[request_id].aborted |= results[request_id].under_way
            core.abort(request_id)
        _take_outputs(core, results)
        after_step()
        step += 1
    return results


def _take_outputs(core: Core, results: dict[str, Generated]) -> None:
    for output in core.step():
        result = results[output.request_id]
        assert not result.aborted, f"{output.request_id} was aborted, then got {output.token_ids}"
        assert result.finish_reason is None, f"{output.request_id} ended, then got more"
        result.token_ids += output.token_ids
        result.logprobs += output.logprobs
        result.finish_reason = output.finish_reason
        result.stop_token_id = output.stop_token_id
        result.error = output.error
        result.cached_tokens = max(result.cached_tokens, output.cached_tokens)


def drain(core: Core) -> None:
    """Step until nothing is left, whatever comes out."""
    while core.has_work():
        core.step()


def run_all(
    core: Core, requests: Sequence[EngineRequest], *, num_layers: int = 3
) -> dict[str, Generated]:
    """Run requests that all arrive at once; every one ends by itself."""
    script = Script.at_once(requests)
    results = run(core, script, steps=max_steps(script, num_layers))
    assert all(result.finish_reason is not None for result in results.values())
    return results
