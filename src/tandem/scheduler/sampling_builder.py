"""Turn rows into the columns that sampling needs."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import CounterNumbers, LongArray, Penalties, SamplingRows
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sequence import Sequence


class SamplingBuilder:
    """Reads sampling parameters from the row table; rare ones from the sequences.

    Args:
        sequence_of: the sequence in a row.
    """

    def __init__(self, rows: RowTable, sequence_of: Callable[[int], Sequence]) -> None:
        self._rows = rows
        self._sequence_of = sequence_of
        self._no_pairs, self._no_values = _pairs([]), np.zeros(0, dtype=np.float32)

    def build(self, rows: RowSet, logits_index: LongArray) -> SamplingRows:
        """Parameters for sampling the next token of `rows` (before it is counted as pending).

        Args:
            logits_index: int64 [len(rows)]; where each row's logits are.
        """
        r, fixed = self._rows, rows.sampling
        bias, values = self._bias(rows.rows, fixed.special)
        return SamplingRows(
            logits_index=logits_index,
            rows=rows.places,
            greedy=fixed.greedy,
            temperature=fixed.temperature,
            top_p=fixed.top_p,
            min_p=fixed.min_p,
            top_k=fixed.top_k,
            numbers=CounterNumbers(
                fixed.seeds, np.add(r.known[rows.index], r.pending[rows.index], dtype=np.int64)
            ),
            banned=self._banned(rows.rows, fixed.special),
            bias=bias,
            bias_values=values,
            penalties=self._penalties(rows.rows, fixed.special),
            logprobs=fixed.logprobs,
        )

    def _places(self, rows: LongArray, special: LongArray) -> list[tuple[int, int]]:
        """(index in `rows`, row) of the rows with rare parameters."""
        members = set(special.tolist())
        return [(i, row) for i, row in enumerate(rows.tolist()) if row in members]

    def _banned(self, rows: LongArray, special: LongArray) -> LongArray:
        """Ending tokens of rows that have not reached their least length."""
        if not len(special):
            return self._no_pairs
        r = self._rows
        pairs = [
            (i, token)
            for i, row in self._places(rows, special)
            if r.known[row] + r.pending[row] < r.min_total[row]
            for token in sorted(self._sequence_of(row).stop_ids)
        ]
        return _pairs(pairs)

    def _bias(self, rows: LongArray, special: LongArray) -> tuple[LongArray, NDArray[np.float32]]:
        if not len(special):
            return self._no_pairs, self._no_values
        entries = [
            (i, token, value)
            for i, row in self._places(rows, special)
            for token, value in self._sequence_of(row).request.sampling.logit_bias
        ]
        values = np.array([value for _, _, value in entries], dtype=np.float32)
        return _pairs([(i, token) for i, token, _ in entries]), values

    def _penalties(self, rows: LongArray, special: LongArray) -> Penalties | None:
        if not len(special):
            return None
        late = special[self._rows.late[special]]
        if not len(late):
            return None
        prompt: list[LongArray] = []
        output: list[LongArray] = []
        counts: list[LongArray] = []
        factors = np.tile(np.array([1, 0, 0], dtype=np.float32), (len(rows), 1))
        for i, row in self._places(rows, late):
            sequence = self._sequence_of(row)
            params = sequence.request.sampling
            factors[i] = (
                params.repetition_penalty, params.presence_penalty, params.frequency_penalty,
            )  # fmt: skip
            tokens = np.array(sequence.tokens, dtype=np.int64)
            seen = np.unique(tokens[: sequence.num_prompt])
            made, times = np.unique(tokens[sequence.num_prompt :], return_counts=True)
            prompt.append(np.stack([np.full(len(seen), i), seen], axis=1))
            output.append(np.stack([np.full(len(made), i), made], axis=1))
            counts.append(times.astype(np.int64))
        return Penalties(
            prompt=np.concatenate(prompt),
            output=np.concatenate(output),
            counts=np.concatenate(counts),
            repetition=factors[:, 0].copy(),
            presence=factors[:, 1].copy(),
            frequency=factors[:, 2].copy(),
        )


def _pairs(entries: list[tuple[int, int]]) -> LongArray:
    return np.array(entries, dtype=np.int64).reshape(-1, 2)
