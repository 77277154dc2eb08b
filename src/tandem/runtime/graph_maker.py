"""What records a device's work, to have it done again in the same memory."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from tandem.runtime.frozen_ops import FrozenOps

_MOST_APART = 0.02  # of the largest number: 16-bit sums in another order differ by a tenth of it


class GraphError(RuntimeError):
    """Work that cannot be recorded, or comes out wrong when it is done again."""


def require_close(replayed: Tensor, computed: Tensor, what: str) -> None:
    """What a graph gave is what its operations give. Once, at the start: it waits for the device.

    Args:
        replayed: brought to the host before the operations were done again; of logits the device
            may have no room for two.

    Raises:
        GraphError: they differ, or are no numbers.
    """
    expected = computed.cpu()
    apart = (replayed - expected).abs_().max().item()
    if not apart <= _MOST_APART * expected.abs().max().item():
        raise GraphError(f"a graph's {what} are {apart:.3g} off those of its operations")


class GraphMaker(Protocol):
    """Records work; one after the other, since all that is recorded shares memory."""

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Record work that has been done once before.

        Returns: does it again; and its result's memory, which holds until anything recorded is
            done again.

        Raises:
            RuntimeError: it cannot be recorded.
        """
        ...

    def bring(self, host: Tensor, target: Tensor) -> None:
        """Copy from host memory to the device, in the order of the current queue, without waiting;
        `host` may be forgotten at once.
        """
        ...

    def taken_bytes(self) -> int | None:
        """Of the device's memory, by all that has been recorded; None: not known."""
        ...


class EmulatedGraphs:
    """Of the emulated accelerator: torch's operations with their arguments."""

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """See `GraphMaker`.

        Raises:
            GraphError: a number on the device is asked for.
        """
        with FrozenOps() as frozen:
            result = work()
        if frozen.refused:
            raise GraphError(f"the host is asked by {', '.join(sorted(set(frozen.refused)))}")
        return frozen.replay, result

    def bring(self, host: Tensor, target: Tensor) -> None:
        """See `GraphMaker`."""
        target.copy_(host)

    def taken_bytes(self) -> None:
        """Each keeps memory of its own here."""
