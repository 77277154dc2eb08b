"""Places and KV blocks of requests that come one by one: who has them, and who is next."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tandem.memory.growth_reserve import growth_reserve
from tandem.planner.passing import LEAVING_SWEEPS

SweepWithPromptsS = Callable[[float], float]
"""Seconds of a sweep that reads so many tokens of prompts."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where requests have places.

    Attributes:
        places: of those that run at once. blocks: of its KV.
        sweep_s: of a sweep that reads prompts of such requests alone.
        token_s: from one token of a request to the next.
        passes: prompts are read in the first home's blocks, which they leave then.
    """

    places: int
    blocks: int
    sweep_s: SweepWithPromptsS
    token_s: float
    passes: bool = False


@dataclass(slots=True)
class Arrived:
    """A request that waits, or is being read.

    Attributes:
        prompt: tokens. left: of these, those that no sweep has taken yet. later: after its first.
        home: in which it has a place.
    """

    arrival_s: float
    prompt: float
    later: float
    left: float
    home: int = 0


@dataclass(slots=True)
class _Freed:
    """At some time, of a home: a place or none, and blocks."""

    home: int
    places: int
    blocks: int


@dataclass(slots=True)
class Places:
    """Of all homes, and what of them is free.

    Attributes:
        homes: the first with room takes who comes.
    """

    homes: Sequence[Home]
    block_size: int
    _free: list[int] = field(init=False)
    _blocks: list[int] = field(init=False)
    _later: list[tuple[float, int, _Freed]] = field(default_factory=list[tuple[float, int, _Freed]])
    _count: int = 0

    def __post_init__(self) -> None:
        self._free = [home.places for home in self.homes]
        self._blocks = [home.blocks for home in self.homes]

    @property
    def next_s(self) -> float:
        """When something is free next; never, if nothing is taken."""
        return self._later[0][0] if self._later else math.inf

    def go_on(self, now_s: float) -> None:
        """What is free by then."""
        while self.next_s <= now_s:
            freed = heappop(self._later)[2]
            self._free[freed.home] += freed.places
            self._blocks[freed.home] += freed.blocks

    def seat(self, request: Arrived) -> bool:
        """Give it a place, and blocks for its prompt; False if it has to wait for them."""
        for number, home in enumerate(self.homes):
            pool = 0 if home.passes else number
            fits = self._wanted(request.prompt, number, pool) <= self._blocks[pool]
            if self._free[number] and fits:
                request.home = number
                self._free[number] -= 1
                self._blocks[pool] -= self._held(request)
                return True
        return False

    def _wanted(self, tokens: float, number: int, pool: int) -> int:
        """Blocks that are to be free, as an engine has it: for the prompt, for the growth of those
        that run, and beside some of these for a prompt like it that passes.
        """
        blocks = self.homes[pool].blocks
        running = self.homes[pool].places - self._free[pool]
        prompts = 1
        if number == 0 and running and any(home.passes for home in self.homes):
            prompts = 2 if self._free[-1] else 1
        wanted = prompts * self._needs(tokens, pool) + growth_reserve(running, blocks)
        return wanted if prompts > 1 else min(wanted, blocks)

    def _needs(self, tokens: float, pool: int) -> int:
        """Blocks for so many tokens; of what no pool holds, some go elsewhere."""
        return min(math.ceil(tokens / self.block_size), self.homes[pool].blocks)

    def _held(self, request: Arrived) -> int:
        """In the mean over its time; of one that leaves, while it is there."""
        if self.homes[request.home].passes:
            return self._needs(request.prompt, 0)
        return self._needs(request.prompt + request.later / 2, request.home)

    def decodes(self, request: Arrived, first_s: float, end_s: float, sweep_s: float) -> None:
        """Note when its places and blocks will be free.

        Args:
            sweep_s: of one that only decodes, for some of which it leaves.
        """
        held, passes = self._held(request), self.homes[request.home].passes
        self._note(end_s, _Freed(request.home, 1, 0 if passes else held))
        if passes:
            self._note(min(end_s, first_s + LEAVING_SWEEPS * sweep_s), _Freed(0, 0, held))

    def _note(self, at_s: float, freed: _Freed) -> None:
        self._count += 1
        heappush(self._later, (at_s, self._count, freed))
