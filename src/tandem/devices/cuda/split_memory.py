"""Counters by which the last of a product's parts knows that it is the last."""

from functools import cache
from typing import NamedTuple

import torch

from tandem.devices.cuda.device import stream_handle


class SplitMemory(NamedTuple):
    """What products that may be divided along their inputs have beside their parts.

    Attributes:
        counters: int32, zeros whenever no kernel runs: kernels leave them so.
        no_parts: float32, in place of parts that there are not.
    """

    counters: torch.Tensor
    no_parts: torch.Tensor


def split_memory(device: torch.device, count: int) -> SplitMemory:
    """The current stream's, kept: two kernels that run at once must not share counters.

    Graphs have those of the stream that recorded them, which is their engine's own; the engine
    launches them one after another. They are made at the first call, which must not be recorded:
    what records runs the work before, since libraries keep memory for each stream in the same way.

    Args:
        count: of counters.

    Raises:
        RuntimeError: a stream's first call is being recorded.
    """
    return _kept(device, stream_handle(device), count)


@cache
def _kept(device: torch.device, stream: int, count: int) -> SplitMemory:
    del stream
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("the first product of a stream is recorded: run it before")
    counters = torch.zeros(count, dtype=torch.int32, device=device)
    return SplitMemory(counters, counters.view(torch.float32))
