"""What 1, 2, 4, ... threads reach on the CPU, alone and while the link is busy: the number that is
best alone may ask for memory that the link's copies use (LM-Offload, section 4.2).

Import this module only if `native.available()`.
"""

from collections.abc import Mapping
from itertools import cycle
from typing import Literal

import torch

from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.beside import beside
from tandem.probes.contention import Load
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import Workload, make_layers
from tandem.probes.linear_cases import FLOAT16, MatrixShape, make_copies
from tandem.probes.native_samples import attending, multiplying, reading
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import ThreadPoint, ThreadRates
from tandem.spec.dtype import DType

_Work = Literal["read", "attention", "linear"]
_Key = tuple[int, _Work]


def sweep_threads(
    most: int,
    effort: Effort,
    memory: WalkedMemory,
    another: WalkedMemory,
    link: Load | None,
) -> tuple[ThreadPoint, ...]:
    """1, 2, 4, ... `most` threads, over pages in one memory and weights in another.

    Args:
        link: a copy over it, again and again; None: there is none.
    """
    counts = sorted({*(1 << i for i in range(most.bit_length())), most})
    samples, sizes = _samples(counts, effort, memory, another)

    def measure() -> dict[_Key, float]:
        with torch.inference_mode():
            return median_seconds(samples, effort.rounds)

    alone = measure()
    busy = None if link is None else beside(measure, link)()
    return tuple(
        ThreadPoint(
            count,
            _rates(count, sizes, alone),
            None if busy is None else _rates(count, sizes, busy),
        )
        for count in counts
    )


def _samples(
    counts: list[int], effort: Effort, memory: WalkedMemory, another: WalkedMemory
) -> tuple[dict[_Key, Sample], dict[_Work, float]]:
    """Of each number of threads, and the bytes that a call of each work reads."""
    rows, context, side = max(effort.batches), max(effort.contexts), max(effort.sides)
    load, shape = Workload("sweep", (context,) * rows), MatrixShape(side, side)
    pages, own = probe_pages(effort, DType.FLOAT16, memory)
    turns = cycle(make_copies(shape, FLOAT16, another).native())
    layers = make_layers(effort.heads, load, len(pages))
    x = torch.randn(1, side)
    samples: dict[_Key, Sample] = {}
    for count in counts:
        pool = NativePool(count)
        samples[count, "read"] = reading(pool, pages, pages.nbytes)
        samples[count, "attention"] = attending(pool, effort.heads, pages, layers, own)
        samples[count, "linear"] = multiplying(pool, turns, shape, x)
    kv_bytes = rows * context * effort.heads.key_elements * DType.FLOAT16.size_bytes
    return samples, {
        "read": pages.nbytes,
        "attention": kv_bytes,
        "linear": FLOAT16.size_bytes(shape),
    }


def _rates(count: int, sizes: Mapping[_Work, float], seconds: Mapping[_Key, float]) -> ThreadRates:
    works: tuple[_Work, ...] = ("read", "attention", "linear")
    return ThreadRates(*(sizes[work] / seconds[count, work] for work in works))
