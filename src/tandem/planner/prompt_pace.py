"""How fast prompts are read beside rows that decode: tokens of them in a sweep, and requests that
end in it.
"""

from tandem.planner.candidate import Candidate
from tandem.planner.chunks import Chunks, chunk_tokens, chunks_per_sweep
from tandem.planner.question import Question
from tandem.planner.sweep_load import Loads, SweepLoad

_NEARLY_ALL = 0.95
"""Of the prompts: when so many are read into the host's memory, all are taken to be, which is
slower.
"""


class PromptPace:
    """Of candidates of one question, in a steady state."""

    def __init__(self, question: Question, loads: Loads) -> None:
        self._loads = loads
        self._lengths = question.lengths
        self._layers = question.model.num_layers
        self._most_tokens = question.max_num_batched_tokens

    def chunk(self, candidate: Candidate) -> int:
        """Prompt tokens of a sweep that reads any."""
        return self._chunk(candidate.in_every_sweep(), self._needed(candidate))

    def chunk_alone(self) -> int:
        """Likewise, where nothing else runs."""
        return self._chunk(0, 0.0)

    def chunks(self, candidate: Candidate) -> Chunks:
        """How many prompts begin in a sweep."""
        room = self._room(candidate.in_every_sweep())
        return chunks_per_sweep(self._needed(candidate), self._lengths.prompt_tokens, room)

    def finished(self, candidate: Candidate) -> float:
        """Requests per sweep that end: fewer than rows would allow where prompts cannot keep up."""
        behind = self._needed(candidate) / self.chunk(candidate)
        return candidate.served(self._layers) / self._lengths.decode_sweeps / max(1.0, behind)

    def on_host(self, candidate: Candidate) -> float:
        """Share of the prompts whose KV goes to the host."""
        return 1 - candidate.device_rows / candidate.served(self._layers)

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

    def _needed(self, candidate: Candidate) -> float:
        """Prompt tokens that must be read per sweep while the rows decode."""
        ended = candidate.served(self._layers) / self._lengths.decode_sweeps
        return ended * self._lengths.prompt_tokens

    def _chunk(self, decoding: int, needed: float) -> int:
        return chunk_tokens(needed, self._lengths.prompt_tokens, self._room(decoding))

    def _room(self, decoding: int) -> int:
        return max(1, self._most_tokens - decoding)
