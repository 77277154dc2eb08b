"""What the attention pool's cores reach: read bandwidth, and decode attention on real pages."""

import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from tandem.memory.page import KVPageSpec
from tandem.plan.binding import LaneBinding, TierAttention
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.runtime.paced.host import Aliasing, PacedHost
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier

_PASSES = 5


@dataclass(frozen=True, slots=True)
class HostRates:
    """Medians over passes, on the attention pool's cores.

    Attributes:
        read_bytes_per_s: plain reading of memory that exceeds the cache.
        attention_bytes_per_s: keys and values that decode attention gets through.
    """

    read_bytes_per_s: float
    attention_bytes_per_s: float


def probe_host(
    model: ModelSpec,
    page: KVPageSpec,
    aliasing: Aliasing,
    rows: int,
    context: int,
    cores: tuple[int, ...],
) -> HostRates:
    """Measure both rates on `cores`, walking through the same sets of pages as a run does.

    Args:
        rows, context: shape of the decode attention, keys per row.
    """
    found: list[HostRates] = []

    def probe() -> None:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))
        blocks = aliasing.set_bytes // page.bytes_per_block_layer
        host = PacedHost(model, page, blocks, aliasing, seed=1, cores=cores)
        attend = _attention_call(host, page, rows, context)
        size = rows * context * page.bytes_per_block_layer / page.block_size
        reading = [_timed(host.read_set) for _ in range(_PASSES + 1)][1:]
        attending = [_timed(attend) for _ in range(_PASSES + 1)][1:]
        found.append(
            HostRates(
                aliasing.set_bytes / statistics.median(reading),
                size / statistics.median(attending),
            )
        )

    thread = threading.Thread(target=probe, name="tandem-host-probe")
    thread.start()
    thread.join()
    if not found:
        raise RuntimeError("the host probe failed; see the traceback above")
    return found[0]


def _attention_call(
    host: PacedHost, page: KVPageSpec, rows: int, context: int
) -> Callable[[], None]:
    blocks = page.blocks_for_tokens(context)
    binding = _decode_binding(rows, blocks, context)
    op = ProgramOp(OpKind.ATTEND, Queue.CPU, Part.NONE, (0,), 0, 1, (), (), (), Tier.HOST)
    lane = host.prepare(binding)
    return lambda: host.run(op, [lane])


def _decode_binding(rows: int, blocks: int, context: int) -> LaneBinding:
    positions = np.full(rows, context - 1, dtype=np.int32)
    table = np.arange(rows * blocks, dtype=np.int32).reshape(rows, blocks)
    starts = np.arange(rows + 1, dtype=np.int32)
    ids = np.zeros(rows, dtype=np.int64)
    part = TierAttention(None, starts, rows, positions, table, None)
    every = np.arange(rows)
    return LaneBinding(every.astype(np.int32), ids, every, positions, {Tier.HOST: part}, {}, every)


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
