"""How many sequences a batch job has in its passes, by its places."""

import math
from itertools import accumulate

from tandem.planner.offline.course import Course, course
from tandem.planner.question import Lengths


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
        self._courses: dict[tuple[int, bool], Course] = {}

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

    def course(self, places: int, *, streams: bool) -> Course:
        """How the job goes, as the engine has sequences enter.

        Args:
            streams: weights come for every program.
        """
        key = places, streams
        if key not in self._courses:
            self._courses[key] = course(self._passes, places, streams=streams)
        return self._courses[key]
