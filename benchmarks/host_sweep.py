"""What Python does for the host's part of a decoding step that is one graph (ADR 0095): seconds of
its own thread to make the work of all layers, to submit it, and to hear of its end.

No GPU is needed: this thread raises the link's counter layer by layer, as a graph would.

    python -m benchmarks.host_sweep --rows 8 64 --layers 32 --steps 200
"""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import torch

from tandem.kernels.compiled_kernels import CompiledKernels
from tandem.kernels.native_pool import NativePool, Signal
from tandem.kernels.pages import PageShape
from tandem.memory.page import KVPageSpec
from tandem.plan.binding import TierAttention
from tandem.plan.hybrid_sweep import hybrid_template
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.host_link import HostLink, LinkRows
from tandem.runtime.host_tasks import HostTasks
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import TierContext
from tandem.runtime.layer_plans import LayerPlans
from tandem.runtime.running import Running
from tandem.spec.dtype import DType
from tandem.spec.tier import Tier

_HEADS, _KV_HEADS, _HEAD_DIM, _BLOCK = 32, 8, 128, 16
_Result = TypeVar("_Result")
_KEYS = 15  # of each row: attention itself is not what is measured


class HostPart:
    """A model's pages on the host, and the CPU queue's side of a link to a graph."""

    def __init__(self, layers: int, rows: int) -> None:
        self._layers, self._rows = layers, rows
        self._link = self._open_link()
        self._kernels = CompiledKernels(
            NativePool(), _HEADS, PageShape(_KV_HEADS, _BLOCK, _HEAD_DIM), _HEAD_DIM**-0.5
        )
        page = KVPageSpec(layers, _BLOCK, _KV_HEADS, _HEAD_DIM, DType.FLOAT16)
        kv = KVStore(page, {Tier.HOST: rows}, {Tier.HOST: torch.device("cpu")})
        self._tasks = HostTasks(self._kernels, kv, BufferSpace(Arena()))
        self._tasks.link = self._link

    def _open_link(self) -> HostLink:
        heads, cpu = (_HEADS, _KV_HEADS, _HEAD_DIM), torch.device("cpu")

        def pinned(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.uint8)

        return HostLink(self._rows, heads, torch.float16, cpu, pinned, lambda part: part)

    def step(self, number: int) -> tuple[float, float, float]:
        """Seconds of this thread to make a step's work, to submit it, and to hear of its end."""
        running, end = self._running(number), Signal()
        task, made_s = _timed(lambda: self._tasks.prepare(running))
        _, submitted_s = _timed(lambda: task.submit((), (end, 1)))
        for layer in range(self._layers):
            value = number * self._layers + layer + 1
            self._link.down.set(value)
            self._link.up.wait(value)
        end.wait(1)
        _, heard_s = _timed(lambda: (task.wait(), task.publish(), task.stamps_s()))
        return made_s, submitted_s, heard_s

    def _running(self, number: int) -> Running:
        rows = np.arange(self._rows, dtype=np.int32)
        attention = TierAttention(
            token_index=None,
            query_start=np.arange(self._rows + 1, dtype=np.int32),
            num_decode=self._rows,
            positions=np.full(self._rows, _KEYS - 1, dtype=np.int32),
            block_table=rows[:, None].copy(),
            block_index=None,
        )
        slots = torch.from_numpy(rows.astype(np.int64) * _BLOCK + _KEYS - 1)
        plans = LayerPlans.make(attention, self._kernels, (0,) * self._layers)
        lane = SimpleNamespace(
            tiers={Tier.HOST: TierContext(None, None, slots, slots, plans)},
            host_staging=self._link.staging(self._rows, self._rows),
            hybrid=SimpleNamespace(link=LinkRows(number * self._layers, 0, rows, rows)),
        )
        return Running(hybrid_template().ops[0], cast("Any", SimpleNamespace(lanes=[lane])))


def _timed(work: Callable[[], _Result]) -> tuple[_Result, float]:
    begun_s = time.thread_time()
    return work(), time.thread_time() - begun_s


def main(arguments: Sequence[str] | None = None) -> None:
    """A line for each number of rows: medians over steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args(arguments)
    for rows in given.rows:
        part = HostPart(given.layers, rows)
        times = [part.step(number) for number in range(given.steps)]
        parts = [median(column) * 1e3 for column in zip(*times, strict=True)]
        whole = median(map(sum, times)) * 1e3
        made, submitted, heard = (f"{each:.3f}" for each in parts)
        print(
            f"{rows} rows: {whole:.3f} ms of Python a step"
            f" ({made} to make, {submitted} to submit, {heard} to hear of)"
        )


if __name__ == "__main__":
    main()
