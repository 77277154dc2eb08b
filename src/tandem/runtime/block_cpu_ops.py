"""The maths of a block's layers, and MLPs, on the CPU, and the copies around it (ADR 0039, 0065).

What differs from a sweep's: queries, keys and values on the accelerator are a buffer of their own,
and its attention is a result for each way that keys take, with the tokens that it is of.
"""

from collections.abc import Callable
from typing import Any

import torch

from tandem.models.model import Model
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.template_builder import (
    DEVICE_PARTIAL,
    FETCHED_PARTIAL,
    HOST_PARTIAL,
    HOST_STATE,
    QKV,
)
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.column_ops import ColumnOps
from tandem.runtime.cpu_layer_ops import CpuLayerOps, attending
from tandem.runtime.host_copies import HostCopies
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates, merge_parts, qkv_of
from tandem.runtime.layer_plans import Selection
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

_AS_IN_SWEEPS = (
    (OpKind.STAGE, Part.PRE, Queue.CPU),
    (OpKind.STAGE, Part.POST, Queue.CPU),
    (OpKind.STAGE, Part.MLP, Queue.CPU),
)
_ADOPT = (OpKind.STAGE, Part.RESIDUAL, Queue.ACCEL)


class BlockCpuOps:
    """Executes the operations of `plan.block_cpu_layers`.

    Args:
        model: with the CPU's maths, if that computes anything but attention.
        upload: brings a host tensor to the accelerator on the current queue.

    Attributes:
        table: of operations that no program over prompts has.
    """

    def __init__(
        self,
        model: Model,
        buffers: BufferSpace,
        upload: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._buffers = buffers
        # what blocks take of host memory is planned to the byte: pinned memory is rounded up
        self._copies = HostCopies(upload)
        self._sweeps = CpuLayerOps(model.host, buffers, model.dtype, self._copies)
        self._columns = ColumnOps(model, buffers, self._copies)
        self._on_host = LaneStates(buffers, HOST_STATE, Place.HOST)
        self.table: dict[tuple[OpKind, Part, Queue], Callable[[Running], None]] = {
            **{each: self._sweeps.table[each] for each in _AS_IN_SWEEPS},
            **self._columns.table,
            _ADOPT: self._adopt,
            (OpKind.COPY, Part.QKV, Queue.H2D): self._bring_qkv,
            (OpKind.COPY, Part.PARTIAL, Queue.D2H): self._fetch_partials,
            (OpKind.MERGE, Part.NONE, Queue.CPU): self._merge,
        }

    def _adopt(self, running: Running) -> None:
        if self._columns.adds(running):
            self._columns.add(running)
        elif not self._columns.adopt(running):
            self._sweeps.table[_ADOPT](running)

    def fetch_residual(self, running: Running) -> None:
        """To where a pass's layer, or its MLP, is computed; or what the accelerator adds to it."""
        if not self._columns.fetch(running):
            self._sweeps.fetch_residual(running)

    def bring_residual(self, running: Running) -> None:
        """From there; nothing of it is kept but what the CPU goes on with."""
        if self._columns.bring(running):
            return
        self._sweeps.upload_residual(running)
        for lane in self._on_host.lanes(running):
            self._buffers.discard((HOST_STATE, lane.key), running.op.queue)

    def _bring_qkv(self, running: Running) -> None:
        for lane in self._on_host.lanes(running):
            parts = qkv_of(self._on_host.get(running, lane))
            brought = tuple(self._sweeps.brought(part) for part in parts)
            self._buffers.put((QKV, lane.key), Place.DEVICE, brought, running.op.queue)

    def _fetch_partials(self, running: Running) -> None:
        fetched = self._copies.fetched
        for lane in self._on_host.lanes(running):
            key, queue = (DEVICE_PARTIAL, lane.key), running.op.queue
            parts = self._get(running, DEVICE_PARTIAL, lane)
            there = tuple(
                (None if index is None else fetched(index), (fetched(out), fetched(lse)))
                for index, (out, lse) in parts
            )
            self._buffers.discard(key, queue)
            self._buffers.put((FETCHED_PARTIAL, lane.key), Place.HOST, there, queue)

    def _merge(self, running: Running) -> None:
        """Attention over all parts of the keys, which the layer goes on with."""
        fetches = any(ref.name == FETCHED_PARTIAL for ref in running.op.reads)
        for lane in self._on_host.lanes(running):
            parts: list[tuple[Selection, tuple[torch.Tensor, torch.Tensor]]] = []
            if fetches:
                parts += self._get(running, FETCHED_PARTIAL, lane)
                self._buffers.discard((FETCHED_PARTIAL, lane.key), running.op.queue)
            if lane.tiers[Tier.HOST].plans is not None:
                out, lse = self._get(running, HOST_PARTIAL, lane)
                parts.append((attending(lane, Tier.HOST), (out, lse)))
            state = self._on_host.get(running, lane)
            query = qkv_of(state)[0]
            state.finish_attention(merge_parts(query, parts).to(query.dtype))
            self._on_host.put(running, lane, state)

    def _get(self, running: Running, name: str, lane: LaneContext) -> tuple[Any, ...]:
        value = self._buffers.get((name, lane.key), running.op.queue, running)
        assert isinstance(value, tuple)
        return value
