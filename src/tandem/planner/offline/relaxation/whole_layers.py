"""Layers in whole numbers: a programme whose shares are not whole is branched into two."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

_OFF = 1e-6
"""Of a layer, by which the solver may be off."""


@dataclass(frozen=True, slots=True)
class WholeLayers:
    """Of layers, how many may be streamed, and how many of these the CPU's: at least and at most.

    Which numbers there are does not depend on the machine, so that the most over all of them is no
    less on a larger one.
    """

    streamed: tuple[int, int]
    lent: tuple[int, int]

    @staticmethod
    def any_of(num_layers: int) -> "WholeLayers":
        """Any number."""
        return WholeLayers((0, num_layers), (0, num_layers))

    def branches(self, streamed: float, lent: float) -> Iterator["WholeLayers"]:
        """Without what lies next to these, the one that is not whole; none if both are."""
        low = math.floor(streamed + _OFF)
        if streamed > low + _OFF:
            least, most = self.streamed
            yield replace(self, streamed=(least, low))
            yield replace(self, streamed=(low + 1, most))
            return
        low = math.floor(lent + _OFF)
        if lent > low + _OFF:
            least, most = self.lent
            yield replace(self, lent=(least, low))
            yield replace(self, lent=(low + 1, most))
