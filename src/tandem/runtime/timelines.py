"""How far each queue has come, in counters that native threads can raise and wait for, too."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tandem.devices.signal import HostSignal, Signal
from tandem.kernels import native
from tandem.plan.program import Queue

if TYPE_CHECKING:
    from tandem.kernels.native_pool import SignalPoint

_MASK = 0xFFFFFFFF


class NativeTimeline:
    """A timeline in memory that the native pool sees.

    Args:
        address: of a counter that another, such as a device, raises as well; it must outlive this.
            None: one of its own.
    """

    def __init__(self, address: int | None = None) -> None:
        from tandem.kernels.native_pool import Signal as NativeSignal

        self._signal = NativeSignal(address=address)

    def set(self, value: int) -> None:
        """Raise it and wake waiters."""
        self._signal.set(value & _MASK)

    def reached(self, value: int) -> bool:
        """True if it is at or beyond `value`."""
        return self._signal.reached(value & _MASK)

    def wait(self, value: int, timeout_s: float | None = None) -> bool:
        """Block until it reaches `value`; False if `timeout_s` passed first."""
        return self._signal.wait(value & _MASK, timeout_s)

    def point(self, value: int) -> "SignalPoint":
        """For native work: when it has reached `value`."""
        return self._signal, value & _MASK


Timelines = Mapping[Queue, HostSignal]


def make_timelines(addresses: Mapping[Queue, int] | None = None) -> Timelines:
    """One timeline per queue; native where the compiled kernels are there.

    Args:
        addresses: of counters of some queues, where they are native.
    """
    if not native.available():
        return {queue: Signal() for queue in Queue}
    given = addresses or {}
    return {queue: NativeTimeline(given.get(queue)) for queue in Queue}
