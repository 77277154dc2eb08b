"""Where two greedy runs of real arithmetic may part: at ties of the best two (invariant 5)."""

from tests.support.script import Generated

TIE_MARGIN = 1e-5


def differs_at_tie(result: Generated, expected: Generated) -> bool:
    """True if two runs with `logprobs=2` part at a tie; after it they are two different texts.

    Raises:
        AssertionError: they part elsewhere.
    """
    pairs = zip(result.token_ids, expected.token_ids, strict=False)
    place = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    if place is None:
        assert len(result.token_ids) == len(expected.token_ids) or result.aborted
        return False
    first, second = expected.logprobs[place].top_logprobs[:2]
    assert first - second < TIE_MARGIN, f"token {place} differs by a margin of {first - second}"
    return True
