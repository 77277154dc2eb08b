"""How fast prompts are read beside rows that decode: tokens of them in a sweep, and requests that
end in it.
"""

from typing import NamedTuple

from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.chunks import Chunks, chunk_tokens, chunks_per_sweep
from tandem.planner.question import Question
from tandem.planner.sweep_load import Loads, SweepLoad

_NEARLY_ALL = 0.95
"""Of the prompts: when so many are read into the host's memory, all are taken to be, which is
slower.
"""


class Pace(NamedTuple):
    """Of prompts beside some rows in a steady state, wherever layers are.

    Attributes:
        served: tokens that a sweep decodes.
        chunk: prompt tokens of a sweep that reads any. chunks: how many prompts begin in a sweep.
        finished: requests per sweep that end: fewer than rows would allow where prompts cannot keep
            up.
        on_host: share of the prompts whose KV goes to the host.
    """

    served: float
    chunk: int
    chunks: Chunks
    finished: float
    on_host: float


class PromptPace:
    """Of candidates of one question; those with the same requests in the same places share one."""

    def __init__(self, question: Question, loads: Loads) -> None:
        self._loads = loads
        self._lengths = question.lengths
        self._layers = question.model.num_layers
        self._step_of = question.step_of
        self._paces: dict[tuple[Strategy, int, int, int, int], Pace] = {}

    def of(self, candidate: Candidate) -> Pace:
        """Beside a candidate's rows."""
        rows = candidate.device_rows, candidate.host_rows
        key = (candidate.strategy, *rows, candidate.passes, candidate.step_tokens)
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = self._pace(candidate)
        return pace

    def _pace(self, candidate: Candidate) -> Pace:
        lengths, served = self._lengths, candidate.served(self._layers)
        ended = served / lengths.decode_sweeps
        # tokens of prompts that must be read per sweep while the rows decode
        needed, room = ended * lengths.prompt_tokens, self._room(candidate)
        chunk = chunk_tokens(needed, lengths.prompt_tokens, room)
        return Pace(
            served=served,
            chunk=chunk,
            chunks=chunks_per_sweep(needed, lengths.prompt_tokens, room),
            finished=ended / max(1.0, needed / chunk),
            on_host=1 - candidate.device_rows / served,
        )

    def chunk_alone(self, candidate: Candidate) -> int:
        """Prompt tokens of a sweep that reads any, where nothing else runs."""
        return chunk_tokens(0.0, self._lengths.prompt_tokens, self._room(candidate.idle()))

    def loads(
        self, candidate: Candidate, chunk: int, hosted: float
    ) -> list[tuple[float, SweepLoad]]:
        """Sweeps with a chunk of a prompt, whose KV goes to the host in a share of the cases: by
        their weights.
        """
        if hosted > _NEARLY_ALL:
            hosted = 1.0
        return [
            (weight, self._loads.of(candidate, chunk, host_chunk))
            for host_chunk, weight in ((False, 1 - hosted), (True, hosted))
            if weight
        ]

    def _room(self, candidate: Candidate) -> int:
        """What rows that decode leave of a step."""
        return max(1, self._step_of(candidate.step_tokens) - candidate.in_every_sweep())
