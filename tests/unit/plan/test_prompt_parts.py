"""Prompts in the parts of a program that is over all of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tandem.plan.prompt_parts import PartLimits, PromptSize, prompt_parts

_FREE = 1 << 40


def parts(tokens: list[int], most: PartLimits, blocks: int = 0) -> list[list[int]]:
    return list(prompt_parts([PromptSize(n, blocks) for n in tokens], most))


def test_prompts_go_one_after_the_other_while_they_fit() -> None:
    assert parts([3, 4, 2, 5], PartLimits(10, 0, 9)) == [[0, 1, 2], [3]]


def test_what_is_left_of_a_part_goes_to_the_longest_that_fits() -> None:
    # 60 and 70 leave 126: 130 does not fit, 50 and 64 do, then 12
    found = parts([60, 70, 130, 50, 64, 12, 64], PartLimits(256, 0, 9))
    assert found == [[0, 1, 4, 3, 5], [2, 6]]


def test_a_longer_prompt_than_a_part_is_one_by_itself() -> None:
    assert parts([300, 4, 300], PartLimits(256, 0, 9)) == [[0], [1], [2]]


def test_slots_and_rows_limit_parts_too() -> None:
    assert parts([10] * 5, PartLimits(_FREE, 4, 9), blocks=2) == [[0, 1], [2, 3], [4]]
    assert parts([10] * 5, PartLimits(_FREE, 0, 3)) == [[0, 1, 2], [3, 4]]


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 4)), min_size=1, max_size=40),
    st.integers(1, 200),
    st.integers(1, 12),
    st.integers(1, 8),
)
def test_each_prompt_is_in_one_part_within_its_limits(
    sizes: list[tuple[int, int]], tokens: int, blocks: int, prompts: int
) -> None:
    given_sizes = [PromptSize(*size) for size in sizes]
    found = list(prompt_parts(given_sizes, PartLimits(tokens, blocks, prompts)))
    assert sorted(place for part in found for place in part) == list(range(len(sizes)))
    for part in found:
        if len(part) > 1:
            assert sum(given_sizes[n].tokens for n in part) <= tokens
            assert sum(given_sizes[n].blocks for n in part) <= blocks
            assert len(part) <= prompts
    # none of a part's followers would have had room in it
    for before, part in pairwise(found):
        first = given_sizes[part[0]]
        full = sum(given_sizes[n].tokens for n in before) + first.tokens > tokens
        full |= sum(given_sizes[n].blocks for n in before) + first.blocks > blocks
        assert full or len(before) == prompts
