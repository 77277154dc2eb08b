"""Blocks that are kept free for requests that run, so that they can grow a little."""

_DIVISOR = 16


def growth_reserve(growing: int, total_blocks: int) -> int:
    """Of a pool, while another request is to begin: a sixteenth at most.

    Args:
        growing: requests that run and may still begin a block; one is kept for each.
    """
    return min(growing, total_blocks // _DIVISOR)


def with_growth_reserve(requests: int, held_blocks: int) -> int:
    """Blocks of a pool in which so many requests run that hold so many together at most: with the
    reserve that the last of them must find free, which would else wait for another one's end.
    """
    return held_blocks + min(requests - 1, held_blocks // (_DIVISOR - 1))
