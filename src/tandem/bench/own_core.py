"""A core for the thread that schedules, so that attention has the others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tandem.spec.errors import ConfigError


@contextmanager
def own_core() -> Iterator[tuple[int, ...]]:
    """Keep this thread on the first core; yields the others, for attention.

    Raises:
        ConfigError: there is no other.
    """
    before = os.sched_getaffinity(0)
    first, *others = sorted(before)
    if not others:
        raise ConfigError("a paced run needs two cores: one to schedule, one to attend")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {first})
    try:
        yield tuple(others)
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)
