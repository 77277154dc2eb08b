"""Columns of sampling parameters for tests, and a naive reference of the filters."""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import LongArray, Penalties, SamplingRows

NO_PAIRS = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class FixedNumbers:
    """Random numbers that a test has chosen: float64 [n, 2]."""

    values: NDArray[np.float64]

    def of(self, rows: LongArray) -> NDArray[np.float64]:
        """See `RandomNumbers`."""
        return self.values[rows]


def _two_of_each(numbers: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    return np.broadcast_to(numbers if numbers.ndim == 2 else numbers[..., None], (n, 2))


def make_rows(n: int, uniform: object = 0.5, **columns: object) -> SamplingRows:
    """Rows 0..n-1 without filters at temperature 1; `columns` replace fields (scalars repeat).

    Args:
        uniform: the random numbers, [n, 2]; or [n], or one, for a group and for the token in it.
    """
    plain = SamplingRows(
        logits_index=np.arange(n),
        rows=np.arange(n, dtype=np.int32),
        greedy=False,
        temperature=np.ones(n, np.float32),
        top_p=np.ones(n, np.float32),
        min_p=np.zeros(n, np.float32),
        top_k=np.zeros(n, np.int32),
        numbers=FixedNumbers(_two_of_each(np.asarray(uniform, np.float64), n)),
        banned=NO_PAIRS,
        bias=NO_PAIRS,
        bias_values=np.empty(0, np.float32),
        penalties=None,
        logprobs=None,
    )
    for name, value in columns.items():
        column = getattr(plain, name)
        if isinstance(column, np.ndarray):
            array = np.asarray(value, column.dtype)
            value = np.full(n, array) if array.ndim == 0 else array
        plain = replace(plain, **{name: value})
    return plain


def make_penalties(
    n: int,
    *,
    prompt: list[tuple[int, int]] | None = None,
    output: list[tuple[int, int, int]] | None = None,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
) -> Penalties:
    """Penalties of n rows; `output` holds (row, token, count)."""
    seen = np.array(output or [], np.int64).reshape(-1, 3)
    return Penalties(
        prompt=np.array(prompt or [], np.int64).reshape(-1, 2),
        output=np.ascontiguousarray(seen[:, :2]),
        counts=seen[:, 2],
        repetition=np.full(n, repetition, np.float32),
        presence=np.full(n, presence, np.float32),
        frequency=np.full(n, frequency, np.float32),
    )


def take_rows(rows: SamplingRows, chosen: list[int]) -> SamplingRows:
    """The chosen rows alone, in that order; without sparse entries."""
    columns = {
        f.name: getattr(rows, f.name)[chosen]
        for f in fields(rows)
        if isinstance(getattr(rows, f.name), np.ndarray)
        and f.name not in ("banned", "bias", "bias_values")
    }
    return replace(rows, **columns, numbers=FixedNumbers(rows.numbers.of(np.array(chosen))))


def naive_probabilities(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float
) -> np.ndarray:
    """Filtered, renormalised probabilities of one row in float64, by sorting everything."""
    scaled = logits.astype(np.float64) / temperature
    order = np.argsort(-scaled, kind="stable")
    probs = np.exp(scaled - scaled.max())
    if top_k > 0:
        probs[probs < probs[order[min(top_k, len(order)) - 1]]] = 0
    probs /= probs.sum()
    before = np.cumsum(probs[order]) - probs[order]
    probs[order[before >= top_p]] = 0
    probs[probs < min_p * probs.max()] = 0
    return probs / probs.sum()
