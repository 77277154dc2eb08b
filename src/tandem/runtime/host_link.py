"""Memory and counters by which a graph and the CPU's threads hand rows to each other, layer by
layer, while both run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from tandem.devices.signal import LONGEST_STAND_S
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.native_pool import Signal
from tandem.kernels.whole_tokens import with_whole_tokens
from tandem.plan.binding import IntArray
from tandem.runtime.staging import LaneStaging

STEPS_TOLD = 16
"""Of which it is remembered how long they waited: more than are ever in flight."""
_NUMBERS = 4  # a step's value, its rows there, its place among those told of, keys that go there
_ALIGNED = 4  # of int32, where Triton takes a pointer to be aligned
_APART = 64  # bytes, of a cache line


class HostLostError(RuntimeError):
    """The accelerator went on without the host's part of a step: what it computed is wrong."""


@dataclass(frozen=True, slots=True)
class LinkRows:
    """Which tokens of a step the host attends to.

    Attributes:
        base: the counters' value before the step, 0 to 2**32 - 1.
        told: the step's place among those of which it is told how long they waited.
        rows: int32; their places in the step. put: of those whose keys go to the host.
    """

    base: int
    told: int
    rows: IntArray
    put: IntArray


class HostLink:
    """One step's rows at a time: queries, keys and values go down, attention comes up.

    The same memory serves all layers: a layer's rows go down only after those of the layer before
    have come up. Launched on the accelerator's queue, in the order `send`, `receive` for each
    layer; the CPU's threads wait for `down` and raise `up`.

    Args:
        pinned: gives bytes of host memory that the device reads and writes. seen: such memory as
            the device sees it.
        limit_s: the accelerator waits no longer for a layer; then it waits for none any more.

    Attributes:
        down, up: counters, `base + layer + 1` each for each step.
    """

    def __init__(
        self,
        places: int,
        heads: tuple[int, int, int],  # of queries, of keys, and a head's elements
        dtype: torch.dtype,
        device: torch.device,
        pinned: Callable[[int], Tensor],
        seen: Callable[[Tensor], Tensor],
        limit_s: float = LONGEST_STAND_S,
    ) -> None:
        query_heads, kv_heads, dim = heads
        places = -(-places // _ALIGNED) * _ALIGNED
        self.places, self._query, self._key = places, query_heads * dim, kv_heads * dim
        self._heads, self._limit_s = query_heads, limit_s
        queries, keys = (places, query_heads, dim), (places, kv_heads, dim)
        shapes = ((queries, dtype), (keys, dtype), (keys, dtype),
                  (queries, torch.float32), (queries[:2], torch.float32))  # fmt: skip
        query, key, value, out, lse = (_part(pinned, shape, kind) for shape, kind in shapes)
        self._staging = LaneStaging(query, key, value, out, lse, pinned=True)
        self._there = tuple(seen(part) for part in (query, key, value, out, lse))
        self._counters = pinned(2 * _APART + STEPS_TOLD * 8)
        self._counters.zero_()
        first = self._counters.data_ptr()
        self._addresses = first, first + _APART, first + 2 * _APART
        self.down, self.up = Signal(address=first), Signal(address=first + _APART)
        self._told = self._counters[2 * _APART :].view(torch.int64)
        self._numbers = torch.zeros(_NUMBERS + 2 * places, dtype=torch.int32, device=device)
        self._waited = torch.zeros(1, dtype=torch.int64, device=device)
        self._out = torch.zeros(queries, dtype=torch.float32, device=device)
        self._lse = torch.zeros(queries[:2], dtype=torch.float32, device=device)

    # --- on the host ----------------------------------------------------------------------------

    def staging(self, count: int, put: int) -> LaneStaging:
        """The first places, so many for attention, and so many for keys."""
        own = self._staging
        return LaneStaging(
            own.query[:count], own.key[:put], own.value[:put], own.out[:count],
            own.lse[:count], pinned=True,
        )  # fmt: skip

    @property
    def numbers(self) -> Tensor:
        """Where a step's numbers are brought: int32, as `numbers_of`."""
        return self._numbers

    def numbers_of(self, step: LinkRows) -> Tensor:
        """What the kernels read of a step."""
        made = np.zeros(len(self._numbers), dtype=np.uint32)
        made[:_NUMBERS] = step.base, len(step.rows), step.told, len(step.put)
        made[_NUMBERS : _NUMBERS + len(step.rows)] = step.rows
        first_put = _NUMBERS + self.places
        made[first_put : first_put + len(step.put)] = step.put
        return torch.from_numpy(made.view(np.int32))

    def waited_s(self, step: LinkRows) -> float:
        """How long the accelerator stood in a step that has ended, one of the latest.

        Raises:
            HostLostError: it did not wait to the end, in this step or in one before.
        """
        waited_ns = int(self._told[step.told])
        if waited_ns < 0:
            raise HostLostError(
                "the accelerator has waited for the host's part of a layer for"
                f" {self._limit_s:g} s, and went on without it"
            )
        return waited_ns * 1e-9

    # --- launched -------------------------------------------------------------------------------

    def send(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Rows of the step leave, [tokens, heads, elements] each; then `down` is raised."""
        from tandem.kernels.triton_link import send_rows
        from tandem.kernels.triton_plan import power_of_two

        query, key, value = (with_whole_tokens(part) for part in (query, key, value))
        places = min(self.places, len(query))
        cast("Any", send_rows)[(places,)](
            query, key, value, self._numbers, self._numbers[_NUMBERS:],
            self._numbers[_NUMBERS + self.places :], *self._there[:3],
            query.stride(0), key.stride(0), value.stride(0),
            QUERY=self._query, KEY=self._key,
            PAD_QUERY=power_of_two(self._query), PAD_KEY=power_of_two(self._key),
        )  # fmt: skip
        self._raise(layer)

    def receive(self, layer: int, tokens: int) -> AttentionOutput:
        """Stand until `up` has been raised; attention of the first places, as many as tokens."""
        from tandem.kernels.triton_link import receive_rows
        from tandem.kernels.triton_plan import power_of_two

        places = min(self.places, tokens)
        self._stand(layer)
        cast("Any", receive_rows)[(places,)](
            *self._there[3:], self._numbers, self._out, self._lse,
            QUERY=self._query, HEADS=self._heads,
            PAD_QUERY=power_of_two(self._query), PAD_HEADS=power_of_two(self._heads),
        )  # fmt: skip
        return AttentionOutput(self._out[:places], self._lse[:places])

    def _raise(self, layer: int) -> None:
        from tandem.kernels.triton_link import raise_counter

        cast("Any", raise_counter)[(1,)](self._addresses[0], self._numbers, layer, num_warps=1)

    def _stand(self, layer: int) -> None:
        from tandem.kernels.triton_link import await_counter

        cast("Any", await_counter)[(1,)](
            self._addresses[1], self._addresses[2], self._numbers, self._waited, layer,
            round(self._limit_s * 1e9), num_warps=1,
        )  # fmt: skip


def _part(pinned: Callable[[int], Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    size = int(np.prod(shape)) * dtype.itemsize
    return pinned(size)[:size].view(dtype).view(shape)
