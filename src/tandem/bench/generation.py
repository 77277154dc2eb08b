"""Greedy generation with time stamps, by this engine and by its peer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class Generated:
    """What a run gave and when.

    Attributes:
        token_ids: new tokens per prompt.
        first_s: from the start to the moment at which every prompt had its first token.
        decode_s: from then to the end.
    """

    token_ids: tuple[tuple[int, ...], ...]
    first_s: float
    decode_s: float

    @property
    def decode_tokens_per_s(self) -> float:
        """All new tokens but each prompt's first, over `decode_s`."""
        return sum(len(ids) - 1 for ids in self.token_ids) / self.decode_s


class Generator(Protocol):
    """Continues prompts of equal length greedily."""

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        """Exactly `new_tokens` for each prompt."""
        ...


def share_of_equal_tokens(runs: Sequence[Generated], others: Sequence[Generated]) -> float:
    """Share of new tokens that agree, run by run; in 16 bits, near ties may fall either way."""
    pairs = [
        (ours, theirs)
        for run, other in zip(runs, others, strict=True)
        for a, b in zip(run.token_ids, other.token_ids, strict=True)
        for ours, theirs in zip(a, b, strict=True)
    ]
    return sum(ours == theirs for ours, theirs in pairs) / len(pairs)


class Stamps:
    """Moments at which tokens came."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._times: list[float] = []

    def stamp(self) -> None:
        """A token of every prompt has come."""
        self._times.append(time.perf_counter())

    def result(self, token_ids: list[list[int]]) -> Generated:
        """The run, from the object's creation to the last stamp."""
        first, last = self._times[0], self._times[-1]
        return Generated(tuple(map(tuple, token_ids)), first - self._start, last - first)
