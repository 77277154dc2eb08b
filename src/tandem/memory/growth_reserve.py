"""Blocks that are kept free for requests that run, so that they can grow a little."""

_DIVISOR = 16


def growth_reserve(growing: int, total_blocks: int) -> int:
    """Of a pool, while another request is to begin: a sixteenth at most.

    Args:
        growing: requests that run and may still begin a block; one is kept for each.
    """
    return min(growing, total_blocks // _DIVISOR)
