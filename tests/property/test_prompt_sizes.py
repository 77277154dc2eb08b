"""No order in which prompts are put together takes less than the least that is counted."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tandem.planner.offline.prompt_sizes import PromptSizes
from tandem.planner.question import Lengths
from tandem.spec.workload import RequestShape, Workload

_OVERHEAD, _LEAST, _TILE = 3, 40, 16


def orders(prompts: list[int], most: int, rows: int) -> Iterator[list[list[int]]]:
    """All ways to make parts of them; a single prompt may exceed what fits."""
    if not prompts:
        yield []
        return
    first, *others = prompts
    for parts in orders(others, most, rows):
        yield [[first], *parts]
        for n, part in enumerate(parts):
            if sum(part) + first <= most and len(part) < rows:
                yield [*parts[:n], [first, *part], *parts[n + 1 :]]


def in_tiles(tokens: int) -> int:
    return line(-(-tokens // _TILE) * _TILE)


def line(tokens: int) -> int:
    return _OVERHEAD + max(_LEAST, tokens)


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=6), st.integers(50, 300), st.integers(1, 4)
)
def test_no_order_takes_less(prompts: list[int], most: int, rows: int) -> None:
    shapes = tuple(RequestShape(tokens, 8) for tokens in prompts)
    least = PromptSizes(Lengths.of(Workload("test", shapes)), 16, most).least(rows)
    alone = sum(count * in_tiles(tokens) for tokens, count in least.alone)
    least_s = alone + sum(count * line(tokens) for tokens, count in least.parts)
    for parts in orders(prompts, most, rows):
        assert least_s <= sum(in_tiles(sum(part)) for part in parts) + 1e-9
