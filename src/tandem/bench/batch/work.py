"""A batch job's requests: random prompts, each with its number of tokens to generate."""

import random
from dataclasses import dataclass

_SPECIAL = 3
"""Ids below are the demo model's tokens for begin, end and padding."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, greedy, whose end tokens end nothing."""

    prompt: tuple[int, ...]
    new_tokens: int


@dataclass(frozen=True, slots=True)
class BatchWork:
    """What is run.

    Attributes:
        prompt, generated: fewest and most tokens of a request, drawn evenly.
        vocab_size: of the tokenizer; ids beyond it are not asked for.
    """

    requests: int
    prompt: tuple[int, int]
    generated: tuple[int, int]
    vocab_size: int

    def drawn(self, seed: int) -> tuple[Asked, ...]:
        """The requests; equal seeds give equal ones."""
        draw, ids = random.Random(seed), range(_SPECIAL, self.vocab_size)
        return tuple(
            Asked(
                tuple(draw.choices(ids, k=draw.randint(*self.prompt))),
                draw.randint(*self.generated),
            )
            for _ in range(self.requests)
        )

    def __str__(self) -> str:
        (short, long), (few, many) = self.prompt, self.generated
        return f"{self.requests} requests, {short}-{long} in, {few}-{many} out"


@dataclass(frozen=True, slots=True)
class Answered:
    """A whole job.

    Attributes:
        texts: by request. tokens: that were asked for.
        wall_s: from the first line read, or the first batch begun, to the last result.
    """

    texts: tuple[str, ...]
    tokens: int
    wall_s: float

    @property
    def tokens_per_s(self) -> float:
        """Of output."""
        return self.tokens / self.wall_s
