"""The maths of layers on the CPU, and the copies between them and the accelerator (ADR 0014)."""

from collections.abc import Callable

import numpy as np
import torch

from tandem.models.host_layers import HostLayers
from tandem.models.layer_state import LayerState, taken
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.template_builder import (
    DEVICE_PARTIAL,
    EXPERT_SUM,
    FETCHED_PARTIAL,
    HOST_PARTIAL,
    HOST_QKV,
    HOST_STATE,
    STAGED_QKV,
    STAGED_STATE,
    STATE,
)
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.host_copies import HostCopies
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates, merge_parts, qkv_of
from tandem.runtime.layer_plans import Selection
from tandem.runtime.running import Running
from tandem.spec.tier import Tier


class CpuLayerOps:
    """Executes the operations of `plan.cpu_layers`.

    Args:
        layers: the maths; None if the model has no such layers.
        dtype: of the accelerator's activations.
        copies: over the link.
    """

    def __init__(
        self,
        layers: HostLayers | None,
        buffers: BufferSpace,
        dtype: torch.dtype,
        copies: HostCopies,
    ) -> None:
        self._layers = layers
        self._buffers = buffers
        self._dtype = dtype
        self.copies = copies
        self._on_host = LaneStates(buffers, HOST_STATE, Place.HOST)
        self._on_device = LaneStates(buffers, STATE, Place.DEVICE)
        self.table: dict[tuple[OpKind, Part, Queue], Callable[[Running], None]] = {
            (OpKind.COPY, Part.RESIDUAL, Queue.D2H): self.fetch_residual,
            (OpKind.COPY, Part.ROUTE, Queue.D2H): self._fetch_routed,
            (OpKind.STAGE, Part.PRE, Queue.CPU): self._pre,
            (OpKind.COPY, Part.QKV, Queue.H2D): self._upload_qkv,
            (OpKind.COPY, Part.PARTIAL, Queue.D2H): self._fetch_partial,
            (OpKind.MERGE, Part.NONE, Queue.CPU): self._merge,
            (OpKind.STAGE, Part.POST, Queue.CPU): self._post,
            (OpKind.STAGE, Part.MLP, Queue.CPU): self._mlp,
            (OpKind.COPY, Part.RESIDUAL, Queue.H2D): self.upload_residual,
            (OpKind.STAGE, Part.RESIDUAL, Queue.ACCEL): self._adopt,
        }

    # --- the residual -----------------------------------------------------------------------------

    def fetch_residual(self, running: Running) -> None:
        """To the host, in the type that layers are computed in there."""
        for lane in self._on_host.lanes(running):
            self._on_host.put(running, lane, self._fetched(running, lane))

    def _fetch_routed(self, running: Running) -> None:
        for lane in self._on_host.lanes(running):
            routed, state = self._on_device.get(running, lane), self._fetched(running, lane)
            state.experts = self.copies.fetched(taken(routed.experts, "experts"))
            state.expert_weights = self.copies.fetched(taken(routed.expert_weights, "weights"))
            self._on_host.put(running, lane, state)

    def _fetched(self, running: Running, lane: LaneContext) -> LayerState:
        residual = self._on_device.get(running, lane).residual
        positions = lane.slot.binding.positions.astype(np.int64)
        return LayerState(
            positions=torch.from_numpy(positions),
            residual=self.copies.fetched(residual, self._maths.dtype),
        )

    def upload_residual(self, running: Running) -> None:
        """To the accelerator, beside what it has."""
        for lane in self._on_host.lanes(running):
            residual = self._on_host.get(running, lane).residual
            self._put(running, STAGED_STATE, lane, (self.brought(residual),), Place.DEVICE)

    def _adopt(self, running: Running) -> None:
        shared = any(ref.name == EXPERT_SUM for ref in running.op.reads)
        for lane in self._on_device.lanes(running):
            state = self._on_device.get(running, lane)
            (state.residual,) = self._get(running, STAGED_STATE, lane)
            self._buffers.discard((STAGED_STATE, lane.key), running.op.queue)
            if shared:
                (own,) = self._get(running, EXPERT_SUM, lane)
                state.residual.add_(own)
                state.x = state.experts = state.expert_weights = None
                self._buffers.discard((EXPERT_SUM, lane.key), running.op.queue)
            self._on_device.put(running, lane, state)

    # --- stages -----------------------------------------------------------------------------------

    @property
    def _maths(self) -> HostLayers:
        assert self._layers is not None
        return self._layers

    def _pre(self, running: Running) -> None:
        layer, shapes = running.op.layer, running.context.program.template.lanes
        self._on_host.run(running, lambda state: self._maths.pre(layer, state))
        for index in running.context.active(running.op):
            if shapes[index].host:
                self._stage_for_host(running, running.context.lanes[index])

    def _stage_for_host(self, running: Running, lane: LaneContext) -> None:
        """Give the host tier its tokens as if they had come from the accelerator."""
        tier = lane.tiers[Tier.HOST]
        if tier.plans is None and tier.slots is None:
            return  # of a block's batch, nobody has keys there
        query, key, value = qkv_of(self._on_host.get(running, lane))
        staging = lane.host_staging
        if tier.plans is not None:
            _copy_rows(staging.query, query, attending(lane, Tier.HOST))
        if tier.slots is not None:
            append = _index(lane.slot.binding.append[Tier.HOST].token_index)
            _copy_rows(staging.key, key, append)
            _copy_rows(staging.value, value, append)
        staged = (staging.query, staging.key, staging.value)
        self._put(running, HOST_QKV, lane, staged, Place.HOST)

    def _post(self, running: Running) -> None:
        layer = running.op.layer
        self._on_host.run(running, lambda state: self._maths.post(layer, state))

    def _mlp(self, running: Running) -> None:
        layer = running.op.layer
        self._on_host.run(running, lambda state: self._maths.mlp(layer, state))

    # --- attention --------------------------------------------------------------------------------

    def _upload_qkv(self, running: Running) -> None:
        for lane in self._on_host.lanes(running):
            parts = qkv_of(self._on_host.get(running, lane))
            staged = tuple(self.brought(part) for part in parts)
            self._put(running, STAGED_QKV, lane, staged, Place.DEVICE)

    def _fetch_partial(self, running: Running) -> None:
        for lane in self._on_host.lanes(running):
            if lane.tiers[Tier.DEVICE].plans is None:
                continue
            parts = self._get(running, DEVICE_PARTIAL, lane)
            fetched = tuple(map(self.copies.fetched, parts))
            self._put(running, FETCHED_PARTIAL, lane, fetched, Place.HOST)

    def _merge(self, running: Running) -> None:
        shapes = running.context.program.template.lanes
        for index in running.context.active(running.op):
            lane = running.context.lanes[index]
            parts: list[tuple[Selection, tuple[torch.Tensor, torch.Tensor]]] = []
            for tier, name, used in (
                (Tier.DEVICE, FETCHED_PARTIAL, shapes[index].device),
                (Tier.HOST, HOST_PARTIAL, shapes[index].host),
            ):
                if used and lane.tiers[tier].plans is not None:
                    out, lse = self._get(running, name, lane)
                    parts.append((attending(lane, tier), (out, lse)))
            state = self._on_host.get(running, lane)
            query = qkv_of(state)[0]
            state.finish_attention(merge_parts(query, parts).to(query.dtype))
            self._on_host.put(running, lane, state)

    # --- buffers ----------------------------------------------------------------------------------

    def brought(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the accelerator, in its activations' type."""
        return self.copies.brought(tensor, self._dtype)

    def _get(self, running: Running, name: str, lane: LaneContext) -> tuple[torch.Tensor, ...]:
        value = self._buffers.get((name, lane.key), running.op.queue, running)
        assert isinstance(value, tuple)
        return value

    def _put(
        self, running: Running, name: str, lane: LaneContext, value: object, place: Place
    ) -> None:
        self._buffers.put((name, lane.key), place, value, running.op.queue)


def attending(lane: LaneContext, tier: Tier) -> Selection:
    """The lane's tokens with keys in a tier, where the CPU reads them."""
    return _index(lane.slot.binding.attention[tier].token_index)


def _index(index: np.ndarray | None) -> Selection:
    return None if index is None else torch.from_numpy(index)


def _copy_rows(target: torch.Tensor, source: torch.Tensor, index: Selection) -> None:
    target.copy_(source if index is None else source.index_select(0, index))
