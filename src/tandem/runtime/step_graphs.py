"""Whole steps in which rows only decode, recorded for a few numbers of rows, to which others are
padded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.kernels.sampling import Likeliest
from tandem.runtime.graph_logits import GraphLogits
from tandem.runtime.graph_maker import GraphError, GraphMaker, require_close
from tandem.runtime.recording import Recording, record_sizes


@dataclass(frozen=True, slots=True)
class DecodeSizes:
    """What graphs are recorded for.

    Attributes:
        buckets: numbers of rows. max_blocks: of a row.
        spare: the block on the device that is nobody's.
        windows: of each layer of the model.
    """

    buckets: tuple[int, ...]
    max_blocks: int
    spare: int
    block_size: int
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Recorded:
    replay: Callable[[], None]
    logits: Tensor


class StepGraphs(ABC):
    """Graphs that give a step's logits, and what is greedily chosen of them, from numbers that lie
    where they read them; all of them share their memory, since the accelerator's queue runs one
    after the other.

    Args:
        at_least: so many are begun to be recorded however little time there is.

    Attributes:
        num_replayed: steps that ran as a graph.
        recording: what came of it.
    """

    def __init__(
        self, sizes: DecodeSizes, device: torch.device, maker: GraphMaker, *, at_least: int = 0
    ) -> None:
        self._sizes, self._maker, self._at_least = sizes, maker, at_least
        rows = max(sizes.buckets)
        self._likeliest = Likeliest(
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.zeros(rows, dtype=torch.bool, device=device),
        )
        self._graphs: dict[int, _Recorded] = {}
        self.num_replayed = 0
        self.recording = Recording()

    @property
    def buckets(self) -> tuple[int, ...]:
        """Numbers of rows that have a graph, ascending."""
        return tuple(sorted(self._graphs))

    def record(self, limit_s: float, limit_bytes: int) -> None:
        """See `record_sizes`."""
        self.recording = record_sizes(
            self._sizes.buckets, self._record, self._maker.taken_bytes, limit_s, limit_bytes,
            at_least=self._at_least,
        )  # fmt: skip

    @abstractmethod
    def _fill(self, bucket: int, *, token: int, position: int) -> None:
        """Bring a step's numbers: rows alike, which read and write what is nobody's."""
        ...

    @abstractmethod
    def _sweep(self, bucket: int) -> Tensor:
        """All layers over the numbers that lie there: logits of every row."""
        ...

    def _replayed(self, bucket: int, rows: int) -> GraphLogits:
        """Launch a step whose numbers have been brought; what it leaves holds until the next one is
        launched.
        """
        graph = self._graphs[bucket]
        graph.replay()
        self.num_replayed += 1
        return GraphLogits(graph.logits[:rows], self._likeliest.first(rows))

    def _record(self, bucket: int) -> None:
        with torch.inference_mode():
            self._graphs[bucket] = self._checked(bucket)

    def _checked(self, bucket: int) -> _Recorded:
        """A graph that gives what its operations give, with other numbers than it was made with."""

        def work() -> Tensor:
            logits = self._sweep(bucket)
            self._likeliest.first(bucket).find(logits)
            return logits

        self._fill(bucket, token=0, position=0)
        work()  # compiles and allocates what is kept
        self._fill(bucket, token=0, position=0)  # to record may be to do it
        replay, logits = self._maker.record(work)
        self._fill(bucket, token=1, position=1)
        self._likeliest.forget()
        replay()
        again = logits.to("cpu", copy=True)
        chose_likeliest = _chose_likeliest_of(logits, self._likeliest.first(bucket))
        self._fill(bucket, token=1, position=1)
        require_close(again, work(), "logits")
        if not chose_likeliest:
            raise GraphError("a graph's tokens are not the likeliest of its logits")
        return _Recorded(replay, logits)


def _chose_likeliest_of(logits: Tensor, chosen: Likeliest) -> bool:
    """Whether the tokens that a graph left are those of the logits that it left, exactly."""
    expected = Likeliest(torch.empty_like(chosen.token_ids), torch.empty_like(chosen.valid))
    expected.find(logits)
    return chosen.equals(expected)
