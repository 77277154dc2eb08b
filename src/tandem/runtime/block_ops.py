"""The maths of a block's programs where it differs from a sweep's (ADR 0025, ADR 0026).

Queries, keys and values are a buffer of their own: the accelerator goes on while new keys and
values are still on their way to the host.
"""

from collections.abc import Callable
from typing import Any

import torch

from tandem.kernels.tier_kernels import TierKernels
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.plan.block_shape import MADE_AT_ONCE
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.template_builder import (
    DEVICE_PARTIAL,
    HOST_QKV,
    HOST_STATE,
    LOGITS,
    QKV,
    STAGED_PARTIAL,
    STATE,
)
from tandem.runtime.block_cpu_ops import BlockCpuOps
from tandem.runtime.block_lanes import is_of_prompts, lanes_of, slot_of
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates, Partial, merge_parts, qkv_of
from tandem.runtime.layer_plans import Selection, select
from tandem.runtime.passing_copies import PassingCopies
from tandem.runtime.passing_memory import PassingMemory
from tandem.runtime.running import Running
from tandem.runtime.sampling_ops import SamplingOps
from tandem.spec.tier import Tier

_CPU = torch.device("cpu")


class BlockOps:
    """Executes what `OpRunner` does not.

    Args:
        upload: brings a host tensor to the accelerator on the current queue.
    """

    def __init__(
        self,
        model: Model,
        kv: KVStore,
        passing: PassingMemory,
        buffers: BufferSpace,
        kernels: dict[Tier, TierKernels],
        upload: Callable[[torch.Tensor], torch.Tensor],
        sampling: SamplingOps,
    ) -> None:
        self._model = model
        self._kv = kv
        self.passing = passing
        self._buffers = buffers
        self._kernels = kernels
        self._upload = upload
        self._sampling = sampling
        self._states = LaneStates(buffers, STATE, Place.DEVICE)
        self.copies = PassingCopies(kv, passing, buffers, kernels)
        self._cpu_layers = BlockCpuOps(model, buffers, upload)
        self.table: dict[tuple[OpKind, Part, Queue], Callable[[Running], None]] = {
            (OpKind.STAGE, Part.PRE, Queue.ACCEL): self._pre,
            (OpKind.STAGE, Part.POST, Queue.ACCEL): self._post,
            (OpKind.STAGE, Part.HEAD, Queue.ACCEL): self._head,
            (OpKind.STAGE, Part.RECOMPUTE, Queue.ACCEL): self._recompute,
            (OpKind.APPEND, Part.NONE, Queue.ACCEL): self._append,
            (OpKind.ATTEND, Part.NONE, Queue.ACCEL): self._attend,
            (OpKind.MERGE, Part.NONE, Queue.ACCEL): self._merge,
            (OpKind.SAMPLE, Part.NONE, Queue.ACCEL): self._sample,
            (OpKind.COPY, Part.QKV, Queue.D2H): self._stage_qkv,
            **self._cpu_layers.table,
            (OpKind.COPY, Part.RESIDUAL, Queue.D2H): self._to_host,
            (OpKind.COPY, Part.RESIDUAL, Queue.H2D): self._from_host,
            **self.copies.table,
        }

    # --- stages -----------------------------------------------------------------------------------

    def _pre(self, running: Running) -> None:
        layer = running.op.layer
        for lane in self._states.lanes(running):
            state = self._states.get(running, lane)
            self._model.run(self._model.stages(layer).pre, layer, state)
            self._put(running, QKV, lane, qkv_of(state))
            state.q = state.k = state.v = None
            if is_of_prompts(running):
                state.rotations = ()  # of as many tokens as a step computes, for each part
            self._states.put(running, lane, state)

    def _post(self, running: Running) -> None:
        layer = running.op.layer
        for lane in self._states.lanes(running):
            state = self._states.get(running, lane)
            if is_of_prompts(running):
                self._finish_attention(lane, state, self._taken_partial(running, lane))
            self._model.run(self._model.stages(layer).post, layer, state)
            self._states.put(running, lane, state)

    def _head(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            hidden = self._states.get(running, lane).residual.index_select(0, lane.logits_index)
            self._put(running, LOGITS, lane, self._model.logits(hidden))
            self._buffers.discard((STATE, lane.key), running.op.queue)

    def _sample(self, running: Running) -> None:
        self._sampling.sample(running)
        for lane in self._states.lanes(running):
            self._buffers.discard((LOGITS, lane.key), running.op.queue)

    # --- attention --------------------------------------------------------------------------------

    def _recompute(self, running: Running) -> None:
        """Keys and values of streamed rows' prefixes, from the layer's inputs (KVPR, eq. 6-7)."""
        for index, lane in lanes_of(running):
            prefix = None if lane.passing is None else lane.passing.prefix
            if prefix is None:
                continue
            slot = self.passing.prefixes[slot_of(running, index)][: len(prefix.positions)]
            parts = (prefix.positions.split(MADE_AT_ONCE), slot.split(MADE_AT_ONCE))
            for positions, inputs, planned in zip(*parts, prefix.planned_appends, strict=True):
                state = LayerState(positions, inputs)
                key, value = self._model.keys_values(running.op.layer, state)
                self._kernels[Tier.DEVICE].append(self.passing.recomputed, key, value, planned)

    def _append(self, running: Running) -> None:
        kernels = self._kernels[Tier.DEVICE]
        pages = self._kv.layer(Tier.DEVICE, running.op.layer, running.op.queue)
        for index, lane in lanes_of(running):
            _, key, value = self._get(running, QKV, lane)
            stays, passing = lane.tiers[Tier.DEVICE], lane.passing
            if stays.planned_append is not None:
                kept = select(key, stays.append), select(value, stays.append)
                kernels.append(pages, *kept, stays.planned_append)
            if passing is not None:
                slot = self.passing.slots[slot_of(running, index)]
                passed = select(key, passing.append), select(value, passing.append)
                self.passing.kernels.append(slot, *passed, passing.planned_append)

    def _attend(self, running: Running) -> None:
        for index, lane in lanes_of(running):
            query = self._get(running, QKV, lane)[0]
            parts = tuple(self._parts(running, index, lane, query))
            self._put(running, DEVICE_PARTIAL, lane, parts)
            if is_of_prompts(running):  # what drains lies in pages
                self._buffers.discard((QKV, lane.key), running.op.queue)

    def _parts(
        self, running: Running, index: int, lane: LaneContext, query: torch.Tensor
    ) -> list[tuple[Selection, Partial]]:
        """Attention over pages that stay, over those that pass, and over recomputed ones."""
        layer, kernels = running.op.layer, self._kernels[Tier.DEVICE]
        stays, passing = lane.tiers[Tier.DEVICE], lane.passing
        found: list[tuple[Selection, Partial]] = []
        if stays.plans is not None:
            pages = self._kv.layer(Tier.DEVICE, layer, running.op.queue)
            out = kernels.attend(select(query, stays.attend), pages, stays.plans.of(layer))
            found.append((stays.attend, (out.out, out.lse)))
        if passing is None:
            return found
        slot = self.passing.slots[slot_of(running, index)]
        chosen = select(query, passing.attend)
        out = self.passing.kernels.attend(chosen, slot, passing.plans.of(layer))
        found.append((passing.attend, (out.out, out.lse)))
        prefix = passing.prefix
        if prefix is not None and prefix.plans is not None:
            chosen = select(query, prefix.attend)
            out = kernels.attend(chosen, self.passing.recomputed, prefix.plans.of(layer))
            found.append((prefix.attend, (out.out, out.lse)))
        return found

    def _merge(self, running: Running) -> None:
        for _, lane in lanes_of(running):
            parts = self._taken_partial(running, lane)
            host = lane.tiers[Tier.HOST]
            if host.plans is not None:
                out, lse = self._get(running, STAGED_PARTIAL, lane)
                parts = [*parts, (host.attend, (out, lse))]
            state = self._states.get(running, lane)
            self._finish_attention(lane, state, parts)
            self._states.put(running, lane, state)

    def _taken_partial(
        self, running: Running, lane: LaneContext
    ) -> list[tuple[Selection, Partial]]:
        """What the accelerator attended to of a lane, which nobody needs after this."""
        if not self._buffers.contains((DEVICE_PARTIAL, lane.key)):
            return []  # all of it is the CPU's
        parts = self._get(running, DEVICE_PARTIAL, lane)
        self._buffers.discard((DEVICE_PARTIAL, lane.key), running.op.queue)
        return list(parts)

    def _finish_attention(
        self, lane: LaneContext, state: LayerState, parts: list[tuple[Selection, Partial]]
    ) -> None:
        spec = self._model.spec
        like_query = state.residual.new_empty(1).expand(
            lane.num_tokens, spec.num_heads, spec.head_dim
        )
        state.finish_attention(merge_parts(like_query, parts).to(self._model.dtype))

    # --- copies of activations --------------------------------------------------------------------

    def _stage_qkv(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            tier = lane.tiers[Tier.HOST]
            if tier.plans is None:
                continue
            query, key, value = self._get(running, QKV, lane)
            staging = lane.host_staging
            staging.query.copy_(select(query, tier.attend))
            staging.key.copy_(select(key, tier.append))
            staging.value.copy_(select(value, tier.append))
            staged = (staging.query, staging.key, staging.value)
            self._put(running, HOST_QKV, lane, staged, Place.HOST)

    def _to_host(self, running: Running) -> None:
        """Prompts' activations wait there, a pass's are computed on."""
        if is_of_prompts(running):
            self._park(running)
        else:
            self._cpu_layers.fetch_residual(running)

    def _from_host(self, running: Running) -> None:
        if is_of_prompts(running):
            self._bring_back(running)
            return
        self._cpu_layers.bring_residual(running)

    def _park(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            residual = self._states.get(running, lane).residual.to(_CPU, copy=True)
            self._put(running, HOST_STATE, lane, residual, Place.HOST)
            self._buffers.discard((STATE, lane.key), running.op.queue)

    def _bring_back(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            residual = self._buffers.get((HOST_STATE, lane.key), running.op.queue, running)
            assert isinstance(residual, torch.Tensor)
            self._states.put(running, lane, LayerState(lane.positions, self._upload(residual)))
            self._buffers.discard((HOST_STATE, lane.key), running.op.queue)

    # --- buffers ----------------------------------------------------------------------------------

    def _get(self, running: Running, name: str, lane: LaneContext) -> tuple[Any, ...]:
        value = self._buffers.get((name, lane.key), running.op.queue, running)
        assert isinstance(value, tuple)
        return value

    def _put(
        self,
        running: Running,
        name: str,
        lane: LaneContext,
        value: object,
        place: Place = Place.DEVICE,
    ) -> None:
        self._buffers.put((name, lane.key), place, value, running.op.queue)
