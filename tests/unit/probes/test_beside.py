"""A probe with something else beside it."""

import threading

import pytest

from tandem.probes.beside import beside


def test_the_load_is_under_way_while_the_probe_runs_and_ended_after() -> None:
    turns = threading.Semaphore(0)
    before = threading.active_count()

    def probe() -> float:
        for _ in range(3):  # more than the one turn that the start waits for
            assert turns.acquire(timeout=30)
        return 2.5

    assert beside(probe, turns.release)() == 2.5
    assert threading.active_count() == before


def test_a_failing_probe_ends_the_load() -> None:
    before = threading.active_count()

    def probe() -> float:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        beside(probe, lambda: None)()
    assert threading.active_count() == before


def test_a_failing_load_is_an_error_and_no_wait_without_end() -> None:
    def load() -> None:
        raise OSError("no link")

    with pytest.raises(OSError, match="no link"):
        beside(lambda: 1.0, load)()
