"""Blocks that are kept free for requests that run, so that they can grow a little."""

_DIVISOR = 16


def growth_reserve(running: int, total_blocks: int) -> int:
    """Of a pool, while another request is to begin: one for each that runs, a sixteenth at most."""
    return min(running, total_blocks // _DIVISOR)


def with_growth_reserve(requests: int, held_blocks: int) -> int:
    """Blocks of a pool in which so many requests run that hold so many together at most: with the
    reserve that the last of them must find free, which would else wait for another one's end.
    """
    return held_blocks + min(requests - 1, held_blocks // (_DIVISOR - 1))
