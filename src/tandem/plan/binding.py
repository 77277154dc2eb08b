"""What fills a program template in one step: rows, tokens, blocks. Arrays, not objects.

A *row* is a sequence's place in the row table and in the device's slot table of sampled ids.
Tokens of a lane are ordered by row: first all rows with one query token (decode), then the others.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tandem.spec.random import uniform
from tandem.spec.tier import Tier

IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TierAttention:
    """The part of a lane's attention whose keys lie in one tier.

    Only rows that hold at least one block in this tier appear. Entries of `block_table` beyond a
    row's own blocks mean nothing and must not be read; where `block_index` is given it holds a
    large number there, so that masking by position drops them. Later steps may write there.

    Attributes:
        token_index: int64 [t]; which of the lane's tokens take part, or None for all of them.
        query_start: int32 [rows + 1]; row r's tokens are those from `query_start[r]` to
            `query_start[r + 1]` (of token_index, positions).
        num_decode: the first `num_decode` rows have exactly one query token.
        positions: int32 [t]; absolute position of each query token.
        block_table: int32 [rows, max_blocks]; physical block ids in this tier, in logical order.
        block_index: int32 [rows, max_blocks]; logical number of each of those blocks, ascending, or
            None if entry j of every row is logical block j (no earlier block lies elsewhere).
    """

    token_index: LongArray | None
    query_start: IntArray
    num_decode: int
    positions: IntArray
    block_table: IntArray
    block_index: IntArray | None

    def rows(self, first: int, last: int) -> "TierAttention":
        """Rows `first` to `last` (exclusive), where queries are selected already.

        Raises:
            ValueError: its tokens are still to be selected.
        """
        if self.token_index is not None:
            raise ValueError("select the tokens before dividing rows")
        if first == 0 and last == len(self.block_table):
            return self
        starts, index = self.query_start[first : last + 1], self.block_index
        return replace(
            self,
            query_start=starts - starts[0],
            num_decode=min(max(self.num_decode - first, 0), last - first),
            positions=self.positions[starts[0] : starts[-1]],
            block_table=self.block_table[first:last],
            block_index=None if index is None else index[first:last],
        )


@dataclass(frozen=True, slots=True)
class TierAppend:
    """Where new K and V entries go in one tier.

    Attributes:
        token_index: int64 [t]; which of the lane's tokens, or None for all of them.
        slots: int64 [t]; block id * block size + offset in the block.
    """

    token_index: LongArray | None
    slots: LongArray


@dataclass(frozen=True, slots=True)
class LaneBinding:
    """One lane's rows in one step.

    Attributes:
        rows: int32 [rows]; places in the row table.
        token_ids: int64 [tokens]; -1 where the id is taken from the slot table of sampled ids.
        token_rows: int64 [tokens]; each token's place in the row table (for that look-up).
        positions: int32 [tokens]; absolute positions.
        attention, append: by tier; a tier without work is absent.
        logits_index: int64 [n]; tokens whose logits are wanted, in the order of the sampled rows.
    """

    rows: IntArray
    token_ids: LongArray
    token_rows: LongArray
    positions: IntArray
    attention: dict[Tier, TierAttention]
    append: dict[Tier, TierAppend]
    logits_index: LongArray

    @property
    def num_tokens(self) -> int:
        """Query tokens of the lane in this step."""
        return len(self.token_ids)

    def has_keys(self, tier: Tier) -> bool:
        """Whether keys of its rows lie in a tier; new ones among them."""
        return tier in self.attention or tier in self.append


class RandomNumbers(Protocol):
    """Two random numbers for each of some rows: `draw_tokens` says what for."""

    def of(self, rows: LongArray) -> NDArray[np.float64]:
        """Those of `rows`, places in the columns: float64 [len(rows), 2] in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class CounterNumbers:
    """Random numbers as functions of (seed, position), contract 6.

    Attributes:
        seeds: uint64 [n]; positions: int64 [n], of the tokens to be drawn.
    """

    seeds: NDArray[np.uint64]
    positions: LongArray

    def of(self, rows: LongArray) -> NDArray[np.float64]:
        """See `RandomNumbers`."""
        return uniform(self.seeds[rows], self.positions[rows])


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """Parameters of the n rows to sample, as columns; row i reads logits row `logits_index[i]`.

    Sparse entries are (row, token) pairs, where row is 0..n-1: the place in these columns.
    Applied in this order: banned, penalties, bias, temperature, top-k, top-p, min-p.

    Attributes:
        logits_index: int64 [n]; row of the step's logits.
        rows: int32 [n]; place in the slot table to write.
        greedy: True if every row is greedy (a temperature of 0); other fields still hold.
        temperature: float32 [n]; 0 is greedy: top_k, top_p, min_p and numbers do not matter then.
        top_p, min_p: float32 [n]; 1 and 0 switch them off.
        top_k: int32 [n]; 0 or less switches it off.
        numbers: what rows are drawn by; made where they are used, not by the scheduler.
        banned: int64 [k, 2]; tokens that must not be sampled (ends before min_tokens).
        bias: int64 [k, 2] with `bias_values` float32 [k], added to the logits.
        penalties: counts of earlier tokens, or None if no row is penalised.
        logprobs: the most alternatives that any row wants (0: only the sampled token's
            log-probability), None if no row wants any.
    """

    logits_index: LongArray
    rows: IntArray
    greedy: bool
    temperature: NDArray[np.float32]
    top_p: NDArray[np.float32]
    min_p: NDArray[np.float32]
    top_k: IntArray
    numbers: RandomNumbers
    banned: LongArray
    bias: LongArray
    bias_values: NDArray[np.float32]
    penalties: "Penalties | None"
    logprobs: int | None


@dataclass(frozen=True, slots=True)
class Penalties:
    """Repetition, presence and frequency penalties, as sparse counts; pairs as in `SamplingRows`.

    Attributes:
        prompt: int64 [k, 2]; distinct prompt tokens (only the repetition penalty sees them).
        output: int64 [m, 2]; distinct output tokens with `counts` int64 [m].
        repetition, presence, frequency: float32 [n], for all rows; neutral values 1, 0, 0.
    """

    prompt: LongArray
    output: LongArray
    counts: LongArray
    repetition: NDArray[np.float32]
    presence: NDArray[np.float32]
    frequency: NDArray[np.float32]
