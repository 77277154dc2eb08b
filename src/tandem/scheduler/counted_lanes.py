"""Lanes and sampled rows without arrays, for programs that nobody computes (`simulator/`): what a
lane is, is counted from the row table as `count_work` would count it from its arrays.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.cost.lane_work import LaneWork
from tandem.cost.stage import AttentionWork
from tandem.plan.binding import CounterNumbers, IntArray, LaneBinding, LongArray, SamplingRows
from tandem.scheduler.lane_builder import LaneBuilder
from tandem.scheduler.row_set import RowSet, RowSets
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sampling_builder import SamplingBuilder
from tandem.scheduler.steady_lane import BuiltLane
from tandem.spec.tier import Tier

_NO_ATTENTION = AttentionWork(0, 0, 0)
_DEVICE, _HOST = Tier.DEVICE, Tier.HOST
_NONE, _ONE = np.array(0, dtype=np.int32), np.array(1, dtype=np.int32)
_NO_INTS: IntArray = np.zeros(0, dtype=np.int32)
_NO_LONGS: LongArray = np.zeros(0, dtype=np.int64)
_NO_FLOATS = np.zeros(0, dtype=np.float32)
_NO_PAIRS: LongArray = np.zeros((0, 2), dtype=np.int64)
_NO_NUMBERS = CounterNumbers(np.zeros(0, dtype=np.uint64), _NO_LONGS)


@dataclass(frozen=True, slots=True)
class CountedBinding(LaneBinding):
    """A lane of which all arrays are empty.

    Attributes:
        work: what it would compute.
    """

    work: LaneWork

    @staticmethod
    def of(work: LaneWork) -> "CountedBinding":
        """Of some work."""
        return CountedBinding(_NO_INTS, _NO_LONGS, _NO_LONGS, _NO_INTS, {}, {}, _NO_LONGS, work)

    @property
    def num_tokens(self) -> int:
        """See `LaneBinding`."""
        return self.work.tokens

    def has_keys(self, tier: Tier) -> bool:
        """See `LaneBinding`."""
        return self.work.num_appended(tier) > 0  # each row lies in one tier


class CountedRows(NamedTuple):
    """What a sweep computes of some rows.

    Attributes:
        after: int32 [rows]; their submitted tokens after it.
        sampled: which of them come to the end of their tokens.
    """

    after: IntArray
    sampled: NDArray[np.bool_]
    work: LaneWork


class RowCounter:
    """Counts rows' parts of sweeps.

    Args:
        windows: of each layer of the model.
    """

    def __init__(self, rows: RowTable, windows: tuple[int, ...]) -> None:
        self._rows, self._windows = rows, windows
        self._different = tuple(set(windows))

    def count(self, rows: LongArray, decodes: int, chunk_tokens: list[int]) -> CountedRows | None:
        """Of rows that decode, then of those with chunks of prompts; None: some have blocks in both
        tiers, or some row's sampling has ever needed its whole history.
        """
        r = self._rows
        on_host = None if r.had_late else self._on_host(rows)
        if on_host is None:
            return None
        before = r.submitted[rows]
        after = before + _ONE
        if chunk_tokens:
            after[decodes:] = before[decodes:] + chunk_tokens
        # no token of theirs is left to compute after this step: they sample the next
        sampled = after == r.known[rows] + r.pending[rows]
        by_tier = _by_tier(decodes, before, after, on_host)
        return CountedRows(after, sampled, self._work(by_tier, int(np.count_nonzero(sampled))))

    def _on_host(self, rows: LongArray) -> NDArray[np.bool_] | None:
        """Which rows lie on the host; None: some have blocks in both tiers."""
        r = self._rows
        hosted = r.num_host_blocks[rows]
        on_host = hosted > _NONE
        count = np.count_nonzero(on_host)
        whole = not count or np.count_nonzero((hosted == r.num_blocks[rows]) & on_host) == count
        return on_host if whole else None

    def _work(self, by_tier: "dict[Tier, _TierTokens]", logits: int) -> LaneWork:
        appended = {tier: tokens.num_tokens for tier, tokens in by_tier.items()}
        by_window = {
            window: {tier: tokens.attention(window) for tier, tokens in by_tier.items()}
            for window in self._different
        }
        return LaneWork(sum(appended.values()), logits, by_window, self._windows, appended)


class CountedLanes(LaneBuilder):
    """Counts lanes where it can, and builds the others."""

    def __init__(
        self,
        rows: RowTable,
        block_size: int,
        tokens_of: Callable[[int], "array[int]"],
        counter: RowCounter,
    ) -> None:
        super().__init__(rows, block_size, tokens_of)
        self._counter, self._sets = counter, RowSets(rows)

    def main(self, decode: LongArray, chunks: list[tuple[int, int]]) -> BuiltLane:
        """See `LaneBuilder`; rows in the order in which they are given."""
        rows = decode
        if chunks:
            rows = np.concatenate([decode, np.array([row for row, _ in chunks], dtype=np.int64)])
        counted = self._counter.count(rows, len(decode), [tokens for _, tokens in chunks])
        return super().main(decode, chunks) if counted is None else self._counted(rows, counted)

    def cohort(self, members: LongArray) -> BuiltLane:
        """See `LaneBuilder`."""
        counted = self._counter.count(members, len(members), [])
        return super().cohort(members) if counted is None else self._counted(members, counted)

    def _counted(self, rows: LongArray, counted: CountedRows) -> BuiltLane:
        every, sampled = self._sets.of(rows), counted.sampled
        whole = np.count_nonzero(sampled) == len(sampled)
        chosen = every if whole else every.some(sampled.nonzero()[0])
        return BuiltLane(CountedBinding.of(counted.work), every, counted.after, chosen)


class CountedSampling(SamplingBuilder):
    """Of rows that are sampled, how many there are."""

    def build(self, rows: RowSet, logits_index: LongArray) -> SamplingRows:
        """See `SamplingBuilder`."""
        return SamplingRows(
            logits_index, rows.places, True,
            _NO_FLOATS, _NO_FLOATS, _NO_FLOATS, _NO_INTS, _NO_NUMBERS,
            _NO_PAIRS, _NO_PAIRS, _NO_FLOATS, None, None,
        )  # fmt: skip


class _TierTokens(NamedTuple):
    """What a sweep computes of the rows that lie in one tier.

    Attributes:
        seen: int32 [rows that decode]; tokens that each sees, its own included.
        chunks: of prompts, each from a token to another (exclusive).
    """

    seen: IntArray
    chunks: list[tuple[int, int]]

    @property
    def num_tokens(self) -> int:
        """Tokens."""
        read = sum([end - begin for begin, end in self.chunks]) if self.chunks else 0
        return len(self.seen) + read

    def attention(self, window: int) -> AttentionWork:
        """Over the rows' keys, in a layer of that window."""
        tokens = self.num_tokens
        if not tokens:
            return _NO_ATTENTION
        seen = np.minimum(self.seen, window) if window else self.seen
        keys = pairs = int(np.add.reduce(seen, dtype=np.int64))
        for begin, end in self.chunks:
            keys += end - (max(0, begin - window + 1) if window else 0)
            pairs += _pairs(end, window) - _pairs(begin, window)
        return AttentionWork(tokens, pairs, keys)


def _by_tier(
    decodes: int, before: IntArray, after: IntArray, on_host: NDArray[np.bool_]
) -> dict[Tier, _TierTokens]:
    """Rows with so many submitted tokens before and after a step, the decoding ones first."""
    seen, hosted = after[:decodes], on_host[:decodes]
    chunks: list[tuple[int, int]] = []
    if decodes < len(before):
        chunks += zip(before[decodes:].tolist(), after[decodes:].tolist(), strict=True)
    there = np.count_nonzero(on_host)
    if not there:
        nothing = _TierTokens(seen[:0], [])
        return {_DEVICE: _TierTokens(seen, chunks), _HOST: nothing}
    if there == len(on_host):
        nothing = _TierTokens(seen[:0], [])
        return {_DEVICE: nothing, _HOST: _TierTokens(seen, chunks)}
    at_host = on_host[decodes:].tolist()
    return {
        tier: _TierTokens(
            seen[hosted == on],
            [chunk for chunk, there in zip(chunks, at_host, strict=True) if there == on],
        )
        for tier, on in ((_DEVICE, False), (_HOST, True))
    }


def _pairs(tokens: int, window: int) -> int:
    """Of the first `tokens` tokens of a sequence and what each sees: up to `window` with itself."""
    growing = min(tokens, window) if window else tokens
    return growing * (growing + 1) // 2 + (tokens - growing) * window
