"""A trace around an engine's construction, if one is asked for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tandem.spec.config import EngineConfig

if TYPE_CHECKING:
    from tandem.engine.engine_trace import EngineTrace
    from tandem.runtime.overlap_meter import OverlapMeter


@contextmanager
def traced(
    config: EngineConfig, clock: Callable[[], float] = time.perf_counter
) -> "Iterator[EngineTrace | None]":
    """The trace that the configuration asks for, around an engine's construction: if that fails,
    the trace ends.

    Args:
        clock: the executor's; now is shown as 0.

    Raises:
        ConfigError: the trace's file cannot be written.
    """
    if config.trace is None:
        yield None
        return
    from tandem.engine.engine_trace import open_trace

    trace = open_trace(config, clock)
    try:
        yield trace
    except BaseException:
        trace.close()
        raise


def begin_to_count(overlap: "OverlapMeter | None", trace: "EngineTrace | None") -> None:
    """Of an engine that is about to begin: what has warmed it up does not count."""
    if overlap is not None:
        overlap.restart()
    if trace is not None:
        trace.start(overlap)
