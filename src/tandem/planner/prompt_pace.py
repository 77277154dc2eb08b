"""How fast prompts are read beside rows that decode: tokens of them in a sweep, and requests that
end in it.
"""

import math
from typing import NamedTuple

from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.chunks import Chunks, chunk_tokens, chunks_per_sweep
from tandem.planner.passing import LEAVING_SWEEPS, passing_sweeps
from tandem.planner.places import num_places
from tandem.planner.question import Question
from tandem.planner.sweep_load import Loads, SweepLoad

_NEARLY_ALL = 0.95
"""Of the prompts: when so many are read into the host's memory, all are taken to be, which is
slower.
"""

_INDEPENDENT = 0.7
"""Of the time for which prompts would wait for each other if they came independently: ends of
outputs that are about as long are more regular. Fitted to five simulated engines with 5 to 27
places, whose prompts keep them reading for 30 to 100% of the time: none of them is off by more than
2.5%. Against queues lived through between those, whose times are up to a tenth off, it is low where
few places read for most of the time: by reading times places over decoding, 2, 3 or 5 places are 4
to 5% low at 1.0, 5 to 6% at 1.2, and 5 to 8% at worst (5 at 1.3, 3 at 1.5, 2 at 2); 8 or more are
never off by more than 3%.

It is no rate of hardware, so that no profile has it: 0 is for prompts that never meet, 1 for those
that come independently, and what lies between depends on how alike outputs are. So what follows
from being wrong is bounded. If it were 0, requests would end 0.2 to 1.6% faster where prompts are
read for half of the time (2 to 64 places), 1.5 to 6.5% where reading times places is decoding, 8%
at most; if it were 1, 0.2 to 1.0% slower, 2.5 to 6.3%, and 11% (8 places, 1.3).
"""


_ROUNDING = 1e-9


class Pace(NamedTuple):
    """Of prompts beside some rows in a steady state, wherever layers are.

    Attributes:
        chunk: prompt tokens of a sweep that reads any. chunks: how many prompts begin in a sweep.
        finished: requests per sweep that end: fewer than rows would allow where requests read
            their prompts, or wait for those of others, in places that would decode.
        on_host: share of the prompts whose KV goes to the host.
        decoding: share of the requests that run that decode in a sweep; others read, or wait.
        filling: sweeps until every place has had its first prompt read; of them, those that read
            none, since no place is free.
    """

    chunk: int
    chunks: Chunks
    finished: float
    on_host: float
    decoding: float
    filling: tuple[float, float]


class PromptPace:
    """Of candidates of one question; those with the same requests in the same places share one.

    Attributes:
        lengths: the workload's.
    """

    def __init__(self, question: Question, loads: Loads) -> None:
        self._loads = loads
        self._question, self.lengths = question, question.lengths
        self._layers = question.model.num_layers
        self._step_of = question.step_of
        self._paces: dict[tuple[Strategy, int, int, int, int, int, bool], Pace] = {}
        self._decoding: dict[Candidate, Candidate] = {}
        self._decode_loads: dict[Candidate, SweepLoad] = {}

    def of(self, candidate: Candidate) -> Pace:
        """Beside a candidate's rows."""
        rows, split = (candidate.device_rows, candidate.host_rows), candidate.device_share > 0
        sizes = candidate.step_tokens, candidate.prompts_here
        key = (candidate.strategy, *rows, candidate.passes, *sizes, split)
        pace = self._paces.get(key)
        if pace is None:
            places = num_places(self._question, candidate)
            pace = self._paces[key] = self._pace(candidate, places)
        return pace

    def _pace(self, candidate: Candidate, places: int) -> Pace:
        lengths, served = self.lengths, candidate.served(self._layers)
        room, prompt_tokens = self.room(candidate), lengths.prompt_tokens
        ended = served / lengths.decode_sweeps
        on_host = 1 - candidate.device_rows / served
        reading, leaving, apart = prompt_tokens / room, 0.0, 0.0
        if candidate.reads_here:
            leaving = on_host * LEAVING_SWEEPS
            # of those that leave, one follows another when there is a place for its prompt
            apart = passing_sweeps(prompt_tokens, room) / candidate.prompts_here
        each = max(reading, on_host * apart)
        # the rest of a prompt takes a whole sweep of its own row's time, but not of others'
        rest = math.ceil(reading) + leaving - each
        decoding = candidate.rows / served * lengths.later_tokens + rest
        finished = min(ended, finished_per_sweep(places, decoding, each))
        # tokens of prompts that are read per sweep while the rows decode
        needed = finished * prompt_tokens
        chunk = chunk_tokens(needed, prompt_tokens, room)
        return Pace(
            chunk=chunk,
            chunks=chunks_per_sweep(needed, prompt_tokens, room),
            finished=finished,
            on_host=on_host,
            decoding=finished / ended,
            filling=self._filling(candidate, chunk, apart),
        )

    def _filling(self, candidate: Candidate, chunk: int, apart: float) -> tuple[float, float]:
        """Sweeps that fill all places: those that read prompts, and those that wait for a place.

        Args:
            apart: sweeps from one prompt to the next of those that leave.
        """
        reading = candidate.rows * self.lengths.prompt_tokens / chunk
        return reading, max(0.0, candidate.host_rows * apart - reading)

    def decoding(self, candidate: Candidate) -> Candidate:
        """With those requests on the host alone that decode in a sweep in the mean, where it waits
        for their attention: on a slow host, one of 13 is 5% of a sweep.
        """
        rides = candidate.strategy == "ride-along" and candidate.host_rows
        if not rides or candidate.device_share:
            return candidate
        found = self._decoding.get(candidate)
        if found is None:
            hosted = math.ceil(candidate.host_rows * self.of(candidate).decoding - _ROUNDING)
            found = self._decoding[candidate] = candidate._replace(host_rows=hosted)
        return found

    def chunk_alone(self, candidate: Candidate) -> int:
        """Prompt tokens of a sweep that reads any, where nothing else runs."""
        return chunk_tokens(0.0, self.lengths.prompt_tokens, self.room(candidate.idle()))

    def decode_load(self, candidate: Candidate) -> SweepLoad:
        """Of a sweep that reads no prompt."""
        found = self._decode_loads.get(candidate)
        if found is None:
            places = num_places(self._question, candidate) if self._loads.tiled else 0
            found = self._loads.of(self.decoding(candidate), places=places)
            self._decode_loads[candidate] = found
        return found

    def loads(
        self, candidate: Candidate, chunk: int, hosted: float, *, tiles: bool = True
    ) -> list[tuple[float, SweepLoad]]:
        """Sweeps with a chunk of a prompt, whose KV goes to the host in a share of the cases: by
        their weights.

        Args:
            tiles: whether those that rows fill, with places empty, are told apart.
        """
        if candidate.reads_here:
            hosted = 0.0
        if hosted > _NEARLY_ALL:
            hosted = 1.0
        decoding, filled = self.decoding(candidate), chunk >= self.room(candidate)
        tiles = tiles and self._loads.tiled
        places = num_places(self._question, candidate) if tiles else 0
        return [
            (weight, self._loads.of(decoding, chunk, host_chunk, filled=filled, places=places))
            for host_chunk, weight in ((False, 1 - hosted), (True, hosted))
            if weight
        ]

    def room(self, candidate: Candidate) -> int:
        """Tokens of a step that rows which decode leave."""
        return max(1, self._step_of(candidate.step_tokens) - candidate.in_every_sweep())


def finished_per_sweep(places: int, decoding: float, reading: float) -> float:
    """Requests that end in a sweep, as many places as there are being taken all the time.

    Each place decodes for a while, and then reads the next prompt, for which it waits while others
    read theirs: a closed queue with one server, whose times hardly vary. Who comes finds, in the
    mean, the others' queue, of which the first has half of its time left: R = r (1 + k (Q - U /
    2)), with k = (n - 1) / n if they came independently, U = X r, and Q = n - X D by Little's law,
    of which X is the smaller root.

    Args:
        decoding: D, sweeps. reading: r, likewise, if nobody waits.
    """
    others = _INDEPENDENT * (1 - 1 / places)
    square = others * reading * (decoding + reading / 2)
    linear = decoding + reading + others * reading * places
    root = math.sqrt(max(0.0, linear * linear - 4 * square * places))
    # the form that does not divide by a square near 0
    return min(2 * places / (linear + root), 1 / reading)
