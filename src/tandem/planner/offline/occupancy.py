"""How many sequences a batch job has in its passes, by its places."""

import heapq
import math
from collections import deque
from itertools import accumulate, groupby
from typing import NamedTuple

from tandem.planner.question import Lengths


class Alike(NamedTuple):
    """Passes with nearly as many sequences, or programs over prompts with nearly as many of those:
    fewer than twice as many as any of them.

    Attributes:
        number: of passes. rows: sequences, in the mean.
    """

    number: float
    rows: float


class Course(NamedTuple):
    """How a job goes, most sequences first.

    Attributes:
        passes: that give each sequence a token. fills: programs over prompts.
    """

    passes: tuple[Alike, ...]
    fills: tuple[Alike, ...]


class Occupancy:
    """Of a job's requests, as long as they are, or all of mean length if that is not known.

    Places whose sequences are over are empty at a job's end, and where each serves several one
    after the other, that may be long.
    """

    def __init__(self, lengths: Lengths) -> None:
        self._requests = lengths.requests
        # the program over prompts gives the first token
        self._mean = max(0.0, lengths.generated_tokens - 1)
        known = [max(0.0, shape.generated_tokens - 1.0) for shape in lengths.shapes]
        passes = sorted(known or [self._mean] * self._requests, reverse=True)
        self._passes = tuple(passes)
        self._longest_passes = tuple(accumulate(passes, initial=0.0))
        self._courses: dict[int, Course] = {}

    def least_passes(self, places: int) -> float:
        """Passes before all sequences have their tokens, a token of each place in a pass, and each
        sequence in one place: of the `n * places + 1` longest, some place has n + 1, which take no
        less than the n + 1 shortest of them.
        """
        sums = self._longest_passes
        rounds = range(math.ceil(self._requests / places))
        return max(sums[n * places + 1] - sums[n * places - n] for n in rounds)

    def tail_passes(self, places: int) -> float:
        """Passes beyond those that sequences of mean length need, in as many rounds."""
        return max(0.0, self.least_passes(places) - self.passes_by_means(places))

    def passes_by_means(self, places: int) -> float:
        """That sequences of mean length need."""
        return math.ceil(self._requests / places) * self._mean

    def most_rows(self, places: int) -> float:
        """Sequences in a pass, in the mean, at most."""
        passes = self.least_passes(places)
        # in each pass there is one
        return max(1.0, min(places, self._requests * self._mean / passes)) if passes else places

    def most_read(self, places: int) -> float:
        """Prompts that one program reads, in the mean, at most: long sequences that run on alone
        make those of a pass few, though all prompts may be read at once.
        """
        return self._requests / math.ceil(self._requests / places)

    def course(self, places: int) -> Course:
        """Where the longest enter first, and others as soon as places are empty."""
        if places not in self._courses:
            passes, fills = list[Alike](), list[Alike]()
            waiting, now = deque(self._passes), 0.0
            ends, free = list[float](), min(places, self._requests)
            while waiting or ends:
                if waiting and free:
                    entering = [waiting.popleft() for _ in range(min(free, len(waiting)))]
                    fills.append(Alike(1, len(entering)))
                    for left in filter(None, entering):  # others have all tokens already
                        heapq.heappush(ends, now + left)
                        free -= 1
                    continue
                passes.append(Alike(ends[0] - now, len(ends)))
                now = ends[0]
                while ends and ends[0] == now:
                    heapq.heappop(ends)
                    free += 1
            self._courses[places] = Course(_grouped(passes), _grouped(fills))
        return self._courses[places]


def _grouped(each: list[Alike]) -> tuple[Alike, ...]:
    found = list[Alike]()
    most_first = sorted(each, key=lambda one: -one.rows)
    for _, alike in groupby(most_first, key=lambda one: math.ceil(math.log2(one.rows))):
        together = list(alike)
        number = sum(one.number for one in together)
        found.append(Alike(number, sum(one.number * one.rows for one in together) / number))
    return tuple(found)
