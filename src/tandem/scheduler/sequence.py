"""A request inside the scheduler."""

from array import array
from dataclasses import dataclass, field

from tandem.spec.request import EngineRequest

ARRIVAL_BITS = 40
"""Of the 64-bit number that ranks a sequence; its priority has the others."""


@dataclass(slots=True)
class Sequence:
    """One accepted request: its tokens, and where it stands.

    Attributes:
        arrival: order of acceptance; with the priority it ranks the sequence.
        priority: the request's, or a higher one that it got by being overtaken (`Overtaking`).
        seed: of its random numbers, its own or derived.
        limit: most tokens of prompt and output together.
        stop_ids: token ids that end it.
        tokens: prompt and known output, 32-bit.
        digests: of its full blocks so far (prefix cache).
        row: place in the row table, None while waiting.
        preemptions: how often it lost its memory. began_here: it lay on the device, whole, when it
            did so last.
        cached_tokens: prompt tokens taken from the prefix cache at first admission.
        arrived_s: when it was accepted, where the scheduler has a clock.
        looked_up: the disk was asked for its beginning since it waits.
        overtaken: how often, since it had `tokens_before` tokens; in the row table while it has a
            row.
    """

    request: EngineRequest
    arrival: int
    seed: int
    limit: int
    stop_ids: frozenset[int]
    tokens: "array[int]"
    digests: list[bytes] = field(default_factory=list[bytes])
    row: int | None = None
    preemptions: int = 0
    cached_tokens: int = -1
    arrived_s: float = 0.0
    looked_up: bool = False
    began_here: bool = False
    priority: int = field(init=False)
    overtaken: int = 0
    tokens_before: int = 0

    def __post_init__(self) -> None:
        self.priority = self.request.priority

    @property
    def request_id(self) -> str:
        """The request's name."""
        return self.request.request_id

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller goes first."""
        return (self.priority, self.arrival)

    @property
    def order(self) -> int:
        """The rank as one 64-bit number."""
        return (self.priority << ARRIVAL_BITS) + self.arrival

    @property
    def num_prompt(self) -> int:
        """Prompt tokens."""
        return len(self.request.prompt_token_ids)

    @property
    def num_output(self) -> int:
        """Known output tokens."""
        return len(self.tokens) - self.num_prompt
