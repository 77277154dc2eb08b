"""Of plans about as fast, which is simpler, and by what."""

from tandem.planner.candidate import STRATEGIES
from tandem.planner.option import Option
from tandem.planner.search.options import AS_FAST

Complexity = tuple[int, bool, bool, bool, float, int, bool]

_MORE_COMPLEX_BY = (
    "by a less simple strategy",
    "reads layers from disk",
    "computes layers on the CPU",
    "takes steps of another size",
    "with more time per token",
    "streams more layers",
    "keeps embeddings in host memory",
)
"""In the order of `complexity`."""
_SEEN_S = 4
"""Place of the time per token in it."""


def complexity(option: Option) -> Complexity:
    """By strategy, what is read from disk, what the CPU computes, whether steps are of another size
    than usual, what a request sees (beyond rounding, to which streaming that is hidden makes no
    difference), what the link carries: layers, then rows of embeddings.
    """
    candidate, rates = option.candidate, option.prediction.rates
    place = STRATEGIES.index(candidate.strategy)
    others = candidate.on_disk > 0, candidate.on_cpu > 0, candidate.step_tokens > 0
    seen_s = float(f"{rates.worst_tpot_s:.4g}") if option.decodes else 0.0
    return place, *others, seen_s, candidate.streamed, candidate.embedding


def as_simple(option: Option, other: Option) -> bool:
    """Whether it is, to what predictions tell of what a request sees."""
    ours, theirs = complexity(option), complexity(other)
    as_simple_otherwise = _but_seen(ours) <= _but_seen(theirs)
    return as_simple_otherwise and ours[_SEEN_S] * AS_FAST <= theirs[_SEEN_S]


def _but_seen(of: Complexity) -> tuple[float, ...]:
    return of[:_SEEN_S] + of[_SEEN_S + 1 :]


def drawback(option: Option, chosen: Option) -> str:
    """Why one that is about as fast as the chosen one was not chosen: what is less simple first in
    the order in which plans are compared. If nothing is, its job takes longer, or is shorter by
    less than predictions tell.
    """
    pairs = zip(_MORE_COMPLEX_BY, complexity(option), complexity(chosen), strict=True)
    by, ours, theirs = next(
        (pair for pair in pairs if pair[1] != pair[2]), (_MORE_COMPLEX_BY[0], 0, 0)
    )
    if ours > theirs:
        return by
    longer = option.tokens_per_s <= chosen.tokens_per_s
    return "with a longer job" if longer else "no better as far as predictions tell"
