"""Requests of a published engine, and the queues that they stand in."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tandem.bench.papers.published.machine import BLOCK_SIZE
from tandem.spec.workload import RequestShape


class Request:
    """One that is served to its length.

    Attributes:
        prompt_tokens: of its prompt, read in one iteration.
        context_tokens: cached when it decodes, or will be once its prompt is read.
        blocks: that they take.
        left_tokens: to generate.
    """

    __slots__ = ("blocks", "context_tokens", "left_tokens", "prompt_tokens")

    def __init__(self, shape: RequestShape) -> None:
        self.prompt_tokens = self.context_tokens = shape.prompt_tokens
        self.left_tokens = shape.generated_tokens
        self.blocks = -(-self.context_tokens // BLOCK_SIZE)

    def advance(self) -> None:
        """Give it a token."""
        self.context_tokens += 1
        self.left_tokens -= 1
        self.blocks = -(-self.context_tokens // BLOCK_SIZE)


@dataclass(slots=True)
class Queues:
    """All requests that are not finished, each in one queue.

    Attributes:
        waiting: for their prompts. on_device, on_host: decoding, where their KV is.
        crossing: of those on the host, who are part-way through the layers.
    """

    waiting: deque[Request]
    on_device: list[Request] = field(default_factory=list)
    on_host: deque[Request] = field(default_factory=deque)
    crossing: list[Request] = field(default_factory=list)

    @staticmethod
    def of(shapes: Iterable[RequestShape]) -> "Queues":
        """All there at once."""
        return Queues(deque(map(Request, shapes)))

    @property
    def are_empty(self) -> bool:
        """Whether everybody is served."""
        return not (self.waiting or self.on_device or self.on_host or self.crossing)

    def drop_finished(self) -> None:
        """Free what they hold."""
        self.on_device = [each for each in self.on_device if each.left_tokens]
        self.on_host = deque(each for each in self.on_host if each.left_tokens)
        self.crossing = [each for each in self.crossing if each.left_tokens]


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one iteration does.

    Attributes:
        time_s: of the accelerator, all layers and the head.
        decoded: rows that get a token.
        to_device, to_host: waiting requests whose prompts are read, by where their KV goes; they
            get their first token.
        blocks_out, blocks_in: KV blocks that change sides beside that.
    """

    time_s: float
    decoded: Sequence[Request] = ()
    to_device: Sequence[Request] = ()
    to_host: Sequence[Request] = ()
    blocks_out: int = 0
    blocks_in: int = 0


def blocks_of(requests: Iterable[Request]) -> int:
    """KV blocks that they take together."""
    return sum([each.blocks for each in requests])


def contexts_of(requests: Iterable[Request]) -> list[int]:
    """Their cached tokens."""
    return [each.context_tokens for each in requests]
