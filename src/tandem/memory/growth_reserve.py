"""Blocks that are kept free for requests that run, so that they can grow a little."""

_DIVISOR = 16


def growth_reserve(running: int, total_blocks: int) -> int:
    """Of a pool, while another request is to begin: one for each that runs, a sixteenth at most."""
    return min(running, total_blocks // _DIVISOR)


def with_growth_reserve(running: int, held_blocks: int) -> int:
    """A pool that has room for what they hold, and beside it for its reserve."""
    return held_blocks + min(running, held_blocks // (_DIVISOR - 1))
