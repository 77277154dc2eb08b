"""Places and KV blocks of requests that come over time: who has them, and who is next."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tandem.memory.growth_reserve import growth_reserve
from tandem.planner.passing import LEAVING_SWEEPS

_ROUNDING = 1e-9
_KNOWN = 2
"""Sweeps after a request's last one, the first that another may have its place in: when an end is
known, the next sweep has been submitted.
"""


@dataclass(frozen=True, slots=True)
class Home:
    """Where requests have places.

    Attributes:
        places: of those that run at once. blocks: of its KV.
        hosted: whether that is on the host, whose requests may advance by less than a token in a
            sweep.
        passes: prompts are read in the first home's blocks, which they leave then, if these could
            ever hold them.
    """

    places: int
    blocks: int
    hosted: bool = False
    passes: bool = False


@dataclass(slots=True)
class Arrived:
    """A request that waits, or runs.

    Attributes:
        prompt: tokens. later: after its first. left: of the prompt, what no sweep has taken yet.
        home: in which it has a place. hosted: whether that is on the host. read_in: the home in
            whose blocks its prompt is read. begun: tokens that a row there had been given when it
            began to grow.
        turn_s: when the sweep begins that reads the first of its prompt. first_s: when its first
            token is there. end_s: its last.
    """

    arrival_s: float
    prompt: int
    later: int
    left: int = field(init=False)
    home: int = 0
    hosted: bool = False
    read_in: int = 0
    begun: float = 0.0
    turn_s: float = -1.0
    first_s: float = 0.0
    end_s: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.prompt


@dataclass(slots=True)
class _Freed:
    """From some sweep on, of a home: a place or none, and blocks."""

    home: int
    places: int
    blocks: float


@dataclass(slots=True)
class _Held:
    """Of a home's blocks, those of requests that do not grow, and of those that do.

    Attributes:
        fixed: blocks. growing: requests. begun: tokens that each row there had been given when they
            began to grow, in sum. now: that it has been given.
    """

    fixed: float = 0.0
    growing: int = 0
    begun: float = 0.0
    now: float = 0.0

    def blocks(self, block_size: int) -> float:
        """Those that are taken, a mean over where in their last blocks requests are."""
        return self.fixed + (self.growing * self.now - self.begun) / block_size


@dataclass(slots=True)
class Places:
    """Of all homes, and what of them is free.

    Attributes:
        homes: the first with room takes who comes.
    """

    homes: Sequence[Home]
    block_size: int
    _free: list[int] = field(init=False)
    _held: list[_Held] = field(init=False)
    _later: list[tuple[int, int, _Freed]] = field(default_factory=list[tuple[int, int, _Freed]])
    _count: int = 0

    def __post_init__(self) -> None:
        self._free = [home.places for home in self.homes]
        self._held = [_Held() for _ in self.homes]

    @property
    def next(self) -> int | None:
        """The first sweep for which something is free that is not yet; None, if nothing will be."""
        return self._later[0][0] if self._later else None

    def go_on(self, sweep: int, given: float) -> None:
        """What is free when a sweep is submitted.

        Args:
            given: tokens that a row on the host has been given by then.
        """
        for home, held in zip(self.homes, self._held, strict=True):
            held.now = given if home.hosted else float(sweep)
        while self._later and self._later[0][0] <= sweep:
            freed = heappop(self._later)[2]
            self._free[freed.home] += freed.places
            self._held[freed.home].fixed -= freed.blocks

    def seat(self, request: Arrived) -> bool:
        """Give it a place, and blocks for its prompt; False if it has to wait for them."""
        for number, home in enumerate(self.homes):
            if not self._free[number] or self._is_too_long(request, number):
                continue
            pool = 0 if home.passes and self._passes(request) else number
            left = self.homes[pool].blocks - self._held[pool].blocks(self.block_size)
            if self._wanted(request.prompt, number, pool) <= left + _ROUNDING:
                request.home, request.hosted, request.read_in = number, home.hosted, pool
                self._free[number] -= 1
                self._held[pool].fixed += self._needs(request.prompt, pool)
                return True
        return False

    def _is_too_long(self, request: Arrived, number: int) -> bool:
        """For a home, whether another one takes it, which could hold it to its end."""
        longest = math.ceil((request.prompt + request.later) / self.block_size)
        return longest > self.homes[number].blocks and number + 1 < len(self.homes)

    def _passes(self, request: Arrived) -> bool:
        """Whether a prompt is read in the first home's blocks, to leave them: not one that these
        could never hold, nor what is in one block.
        """
        reserve = growth_reserve(self._running(0), self.homes[0].blocks)
        blocks = math.ceil(request.prompt / self.block_size)
        return blocks > 1 and blocks + reserve <= self.homes[0].blocks

    def _running(self, number: int) -> int:
        return self.homes[number].places - self._free[number]

    def _wanted(self, tokens: int, number: int, pool: int) -> int:
        """Blocks that are to be free, as an engine has it: for the prompt, for the growth of those
        that run, and beside some of these for a prompt like it that passes.
        """
        blocks, running = self.homes[pool].blocks, self._running(pool)
        prompts = 1
        if number == 0 and running and any(home.passes for home in self.homes):
            prompts = 2 if self._free[-1] else 1
        wanted = prompts * self._needs(tokens, pool) + growth_reserve(running, blocks)
        return wanted if prompts > 1 else min(wanted, blocks)

    def _needs(self, tokens: float, pool: int) -> int:
        """Blocks for so many tokens; of what no pool holds, some go elsewhere."""
        return min(math.ceil(tokens / self.block_size), self.homes[pool].blocks)

    def read(self, request: Arrived, sweep: int) -> int:
        """Note that a sweep has read the end of a prompt.

        Returns: the first sweep that decodes a token of it.
        """
        if request.read_in == request.home:
            return sweep + 1
        left = sweep + LEAVING_SWEEPS + 1
        self._note(left, request.read_in, 0, self._needs(request.prompt, request.read_in))
        self._held[request.home].fixed += self._needs(request.prompt, request.home)
        return left

    def decodes(self, request: Arrived) -> None:
        """Note that it grows."""
        held = self._held[request.home]
        held.growing += 1
        held.begun += held.now
        request.begun = held.now

    def ended(self, request: Arrived, sweep: int) -> None:
        """Note that a sweep has given its last token."""
        held, grown = self._held[request.home], request.later / self.block_size
        if request.later:
            held.growing -= 1
            held.begun -= request.begun
            held.fixed += grown
        needed = self._needs(request.prompt, request.home)
        self._note(sweep + _KNOWN, request.home, 1, needed + grown)

    def _note(self, sweep: int, home: int, places: int, blocks: float) -> None:
        self._count += 1
        heappush(self._later, (sweep, self._count, _Freed(home, places, blocks)))
