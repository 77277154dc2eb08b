"""Seconds of a call."""

import time
from collections.abc import Callable

# Seconds that a variant's n-th call takes; n rotates over what exceeds the caches together.
Sample = Callable[[int], float]


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin
