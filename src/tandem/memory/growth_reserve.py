"""Blocks that are kept free for requests that run, so that they can grow a little."""

_DIVISOR = 16


def growth_reserve(running: int, total_blocks: int) -> int:
    """Of a pool, while another request is to begin: one for each that runs, a sixteenth at most."""
    return min(running, total_blocks // _DIVISOR)
