"""Calls that are timed together, submitted at once."""

from collections.abc import Callable, Sequence

import torch

from tandem.probes.probe_device import ProbeDevice
from tandem.probes.timing import timed


class RecordedCalls:
    """A `Sample`: seconds of one of `count` calls, the same ones every time, in turns.

    They are recorded when they are first timed, since to record them is to run them: launching one
    takes Python longer than it takes a GPU, and what is wanted is the GPU's time.
    """

    def __init__(
        self, probed: ProbeDevice, calls: Sequence[Callable[[], object]], count: int
    ) -> None:
        self._probed, self._calls, self._count = probed, calls, count
        self._again: Callable[[], object] | None = None

    def __call__(self, number: int) -> float:
        """Their mean; whatever the number, they begin with the first one."""
        del number
        if self._again is None:
            self._again = self._probed.recorded(self._all)
            self._probed.synchronize()
        return timed(self._ended) / self._count

    def _all(self) -> None:
        with torch.inference_mode():
            for number in range(self._count):
                self._calls[number % len(self._calls)]()

    def _ended(self) -> None:
        assert self._again is not None
        self._again()
        self._probed.synchronize()
