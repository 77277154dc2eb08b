"""Signals: monotonic, modulo 2**32, waited for across threads."""

import threading

import pytest

from tandem.devices.signal import Signal, reached

LAST = 2**32 - 1


def test_a_signal_is_reached_from_its_value_on() -> None:
    signal = Signal()
    signal.set(3)
    assert signal.value == 3
    assert [signal.reached(value) for value in (0, 3, 4)] == [True, True, False]


def test_a_signal_never_goes_back() -> None:
    signal = Signal(5)
    signal.set(5)
    with pytest.raises(ValueError, match="cannot go back from 5 to 4"):
        signal.set(4)
    assert signal.value == 5


def test_values_wrap_around() -> None:
    signal = Signal(LAST - 1)
    assert not signal.reached(LAST + 2)
    signal.set(LAST)
    signal.set(LAST + 2)  # as a counter that nobody reduces
    assert signal.value == 1
    assert signal.reached(LAST)
    assert signal.reached(1)
    assert not signal.reached(2)
    with pytest.raises(ValueError, match="cannot go back"):
        signal.set(LAST)


@pytest.mark.parametrize("start", [0, 7, 2**31 - 1, 2**31, LAST])
def test_order_is_circular_over_half_the_range(start: int) -> None:
    def later(by: int) -> bool:
        return reached((start + by) & LAST, start)

    assert [later(by) for by in (0, 1, 2**31 - 1)] == [True] * 3
    assert [later(by) for by in (2**31, LAST)] == [False] * 2


def test_a_wait_that_is_over_returns_at_once() -> None:
    assert Signal(2).wait(1, timeout_s=0)
    assert not Signal(2).wait(3, timeout_s=0)


@pytest.mark.parametrize("start", [0, LAST - 1])
def test_waiters_on_other_threads_wake_at_their_value(start: int) -> None:
    signal = Signal(start)
    awake: list[int] = []
    waiting = threading.Barrier(5)

    def wait_for(by: int) -> None:
        waiting.wait()
        assert signal.wait(start + by, timeout_s=10)
        assert signal.reached(start + by)
        awake.append(by)

    threads = [threading.Thread(target=wait_for, args=(by,)) for by in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    waiting.wait()
    for by in (1, 2, 3, 4):
        signal.set(start + by)
        threads[by - 1].join(10)
        assert by in awake
    assert sorted(awake) == [1, 2, 3, 4]
