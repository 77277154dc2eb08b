"""Chained block hashes over any tokens, grown in any pieces."""

from hypothesis import given
from hypothesis import strategies as st

from tandem.memory.block_hash import BlockHasher

tokens = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 2), max_size=60)
sizes = st.integers(1, 9)


@given(tokens=tokens, size=sizes, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_growing_in_pieces_equals_hashing_at_once(
    tokens: list[int], size: int, cuts: list[int]
) -> None:
    hasher, digests = BlockHasher(size), list[bytes]()
    for end in [*sorted(cuts), len(tokens)]:
        hasher.extend(digests, tokens[:end])
        assert len(digests) == min(end, len(tokens)) // size
    assert digests == hasher.digests(tokens)


@given(one=tokens, other=tokens, size=sizes)
def test_digests_agree_exactly_on_the_common_full_blocks(
    one: list[int], other: list[int], size: int
) -> None:
    hasher = BlockHasher(size)
    pairs = zip(hasher.digests(one), hasher.digests(other), strict=False)
    for i, (a, b) in enumerate(pairs):
        assert (a == b) == (one[: (i + 1) * size] == other[: (i + 1) * size])
