"""Workloads: how long the requests are and when they come."""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tandem.spec.errors import ConfigError, shown
from tandem.spec.units import is_count

_RANGE = re.compile(r"(\d+)-(\d+)", re.ASCII)
_LOGNORMAL = re.compile(r"lognormal:(\d+(?:\.\d+)?),(\d+(?:\.\d+)?)(?:,(\d+))?", re.ASCII)
_EXPONENTIAL = re.compile(r"exp:(\d+(?:\.\d+)?)", re.ASCII)
MAX_TOKENS = 10_000_000
"""Of a request, either way: beyond the longest contexts, so that more is a slip."""


@dataclass(frozen=True, slots=True)
class RequestShape:
    """One request: tokens in, tokens out, seconds after the first one."""

    prompt_tokens: int
    generated_tokens: int
    arrival_s: float = 0.0


def are_alike(shapes: Sequence[RequestShape]) -> bool:
    """Whether all of some are equal; none are."""
    if not shapes or shapes[0] != shapes[-1]:  # as most that were drawn, told by one look
        return not shapes
    return shapes.count(shapes[0]) == len(shapes)


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival.

    Attributes:
        name: what the user would call it.
        notes: what had to be assumed to read it.
        timed: its source says when requests come, so that they cannot come at a rate.

    Raises:
        ConfigError: there are none.
    """

    name: str
    requests: tuple[RequestShape, ...]
    notes: tuple[str, ...] = ()
    timed: bool = False

    def __post_init__(self) -> None:
        if not self.requests:
            raise ConfigError(f"{self.name} holds no request; give one with at least one")

    @property
    def duration_s(self) -> float:
        """When the last request comes; 0 if all are there at once."""
        return max(request.arrival_s for request in self.requests)


@dataclass(frozen=True, slots=True)
class LengthDistribution:
    """Numbers of tokens: fixed, uniform over a range, exponential, or log-normal.

    Attributes:
        low, high: of the range; the mean and the standard deviation of a log-normal one.
        most: what is drawn longer is cut to it, which lowers the mean.
    """

    kind: Literal["uniform", "exponential", "lognormal"]
    low: float
    high: float
    most: int | None = None

    def draw(self, rng: random.Random) -> int:
        """At least one token."""
        if self.kind == "uniform":
            return rng.randint(int(self.low), int(self.high))
        if self.kind == "exponential":
            return max(1, round(rng.expovariate(1 / self.low)))
        drawn = max(1, round(_lognormal(self.low, self.high, rng)))
        return drawn if self.most is None else min(drawn, self.most)


def parse_lengths(text: str, param: str) -> LengthDistribution:
    """Read `512`, `400-600`, `exp:300` (mean) or `lognormal:300,200` (mean, standard deviation, and
    if there is a third number, the most).

    Raises:
        ConfigError: none of these, no token, or too many.
    """
    if text.isascii() and text.isdigit():
        tokens = _tokens(text)
        return _checked(LengthDistribution("uniform", tokens, tokens), text, param)
    if match := _RANGE.fullmatch(text):
        low, high = _tokens(match[1]), _tokens(match[2])
        if high < low <= MAX_TOKENS:
            raise ConfigError(
                f"--{param} {shown(text)} is the wrong way round; write {high}-{low}", param=param
            )
        return _checked(LengthDistribution("uniform", low, high), text, param)
    if match := _EXPONENTIAL.fullmatch(text):
        mean = float(match[1])
        return _checked(LengthDistribution("exponential", mean, mean), text, param)
    if match := _LOGNORMAL.fullmatch(text):
        mean, deviation = float(match[1]), float(match[2])
        most = _tokens(match[3]) if match[3] else None
        if deviation > 0 and (most is None or most >= mean):
            return _checked(LengthDistribution("lognormal", mean, deviation, most), text, param)
    raise ConfigError(
        f"--{param} {shown(text)} is no number of tokens; write 512, 400-600, exp:300 or "
        "lognormal:300,200",
        param=param,
    )


def drawn_workload(
    prompt: LengthDistribution,
    generate: LengthDistribution,
    requests: int,
    rate_per_s: float | None = None,
    seed: int = 0,
    name: str = "",
    notes: tuple[str, ...] = (),
) -> Workload:
    """`requests` independent draws, all there at once or coming as a Poisson process.

    Lengths do not depend on the rate.

    Args:
        name, notes: of the lengths' source.
    """
    rng = random.Random(seed)
    lengths = [(prompt.draw(rng), generate.draw(rng)) for _ in range(requests)]
    of = f" of {name}" if name else ""
    return Workload(f"{requests} requests{of}", _coming(lengths, rate_per_s, rng), notes)


def arriving(workload: Workload, rate_per_s: float, seed: int) -> Workload:
    """The same requests in the same order, coming as a Poisson process.

    Raises:
        ConfigError: its source says when they come.
    """
    if workload.timed:
        raise ConfigError(
            f"{workload.name} has arrival times of its own, so that its requests cannot come at a "
            "rate; leave the rate out",
            param="rate",
        )
    lengths = [(shape.prompt_tokens, shape.generated_tokens) for shape in workload.requests]
    return replace(workload, requests=_coming(lengths, rate_per_s, random.Random(seed)))


def _coming(
    lengths: list[tuple[int, int]], rate_per_s: float | None, rng: random.Random
) -> tuple[RequestShape, ...]:
    shapes: list[RequestShape] = []
    now_s = 0.0
    for prompt_tokens, generated_tokens in lengths:
        shapes.append(RequestShape(prompt_tokens, generated_tokens, now_s))
        now_s += rng.expovariate(rate_per_s) if rate_per_s else 0.0
    return tuple(shapes)


def _tokens(digits: str) -> int:
    """At most one more than there may be, so that any number of digits can be read."""
    return min(int(digits), MAX_TOKENS + 1) if is_count(digits) else MAX_TOKENS + 1


def _checked(lengths: LengthDistribution, text: str, param: str) -> LengthDistribution:
    # A deviation may be below the mean, but not beyond all lengths: its square would overflow.
    if lengths.low < 1 or max(lengths.low, lengths.high) > MAX_TOKENS:
        raise ConfigError(
            f"--{param} {shown(text)} must be at least 1 token and at most {MAX_TOKENS}",
            param=param,
        )
    return lengths


def _lognormal(mean: float, deviation: float, rng: random.Random) -> float:
    """A draw with this mean and standard deviation (of the value, not of its logarithm)."""
    variance = math.log(1 + (deviation / mean) ** 2)
    return rng.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))
