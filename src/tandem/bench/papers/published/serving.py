"""Requests served by a published scheduler from the first to the last, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tandem.bench.papers.published.machine import LayerTimes
from tandem.bench.papers.published.queues import Iteration, Queues, blocks_of
from tandem.spec.workload import RequestShape


class PublishedScheduler(Protocol):
    """Decides every iteration."""

    def step(self, queues: Queues) -> Iteration:
        """The next iteration; moves requests between the tiers, and takes none that waits."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """When requests ended, ascending."""

    ends_s: tuple[float, ...]

    def requests_per_s(self, begin: float = 0.0, end: float = 1.0) -> float:
        """Between two shares of the requests; of the whole job, from its first moment."""
        if not begin and end == 1.0:
            return len(self.ends_s) / self.ends_s[-1]
        first, last = (round(share * len(self.ends_s)) for share in (begin, end))
        return (last - first) / (self.ends_s[last] - self.ends_s[first])


def serve(
    scheduler: PublishedScheduler, shapes: Sequence[RequestShape], times: LayerTimes
) -> Served:
    """All requests, which are there at once. Copies over the link run beside the accelerator.

    Raises:
        ValueError: a request outgrows the memory that the scheduler has for it.
    """
    queues, ends_s, now_s = Queues.of(shapes), list[float](), 0.0
    while not queues.are_empty:
        step = scheduler.step(queues)
        out = step.blocks_out + blocks_of(step.to_host)
        took_s = max(step.time_s, times.copies_s(out, step.blocks_in))
        if not took_s:
            raise ValueError("a request outgrows the memory that its engine has for it")
        now_s += took_s
        begun = [*step.to_device, *step.to_host]
        for _ in begun:
            queues.waiting.popleft()
        queues.on_device += step.to_device
        queues.on_host += step.to_host
        ran = [*step.decoded, *begun]
        for each in ran:
            each.advance()
        done = sum([not each.left_tokens for each in ran])
        if done:
            queues.drop_finished()
            ends_s += [now_s] * done
    return Served(tuple(ends_s))
