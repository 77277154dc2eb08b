"""The maths of every operation, the same for all interpreters."""

from collections.abc import Callable

import torch

from tandem.kernels.state import merge_states
from tandem.kernels.tier_kernels import TierKernels
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.plan.events import Event, LaneAdvanced, LaneDone, TransferDone
from tandem.plan.program import EventKind, OpKind, Part, ProgramOp
from tandem.plan.templates import (
    DEVICE_PARTIAL,
    HOST_PARTIAL,
    HOST_QKV,
    LOGITS,
    STAGED_PARTIAL,
    STATE,
)
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import LaneContext, select
from tandem.runtime.running import Running
from tandem.runtime.sampling_ops import SamplingOps
from tandem.spec.tier import Tier

Partial = tuple[torch.Tensor, torch.Tensor]


class OpRunner:
    """Executes single operations against an executor's memory.

    Args:
        slots: int64 [rows] on the accelerator: the last sampled id of each row (contract 6).
        upload: brings a host tensor to the accelerator on the current queue.
        kernels: what attends and appends in each tier.
    """

    def __init__(
        self,
        model: Model,
        kv: KVStore,
        buffers: BufferSpace,
        slots: torch.Tensor,
        upload: Callable[[torch.Tensor], torch.Tensor],
        kernels: dict[Tier, TierKernels],
    ) -> None:
        self._model = model
        self.weights = model.weights
        self.expert_hits = model.expert_hits
        self._kv = kv
        self._buffers = buffers
        self._slots = slots
        self._upload = upload
        self.kernels = kernels
        self.sampling = SamplingOps(buffers, slots, upload)
        self._table: dict[tuple[OpKind, Part], Callable[[Running], None]] = {
            (OpKind.STAGE, Part.EMBED): self._embed,
            (OpKind.STAGE, Part.PRE): self._run_pre,
            (OpKind.STAGE, Part.POST): self._run_post,
            (OpKind.STAGE, Part.HEAD): self._head,
            (OpKind.APPEND, Part.NONE): self._append,
            (OpKind.ATTEND, Part.NONE): self._attend,
            (OpKind.COPY, Part.QKV): self._stage_qkv,
            (OpKind.COPY, Part.PARTIAL): self._stage_partial,
            (OpKind.COPY, Part.PAGES): self._copy_pages,
            (OpKind.COPY, Part.TOKENS): self.sampling.fetch_tokens,
            (OpKind.MERGE, Part.NONE): self._merge,
            (OpKind.SAMPLE, Part.NONE): self.sampling.sample,
            (OpKind.LOAD, Part.NONE): self._load,
        }

    def run(self, running: Running) -> None:
        """Execute one operation; lanes whose guard failed are left out."""
        execute = self._table[(running.op.kind, running.op.part)]
        if torch.is_inference_mode_enabled():
            execute(running)
            return
        with torch.inference_mode():
            execute(running)

    def events(self, running: Running) -> list[Event]:
        """What the end of this operation tells the scheduler."""
        op, context = running.op, running.context
        if op.event is None:
            return []
        step = context.program.step_id
        if op.event is EventKind.LANE_DONE:
            return [LaneDone(step, lane) for lane in context.active(op)]
        if op.event is EventKind.LANE_ADVANCED:
            lane = op.lanes[0]
            return [LaneAdvanced(step, lane, context.guards.get(lane, True))]
        if op.event is EventKind.TRANSFER_DONE:
            return [TransferDone(step, context.pages[(op.queue, op.ordinal)].transfer_id)]
        if op.event is EventKind.TOKENS:
            event = self.sampling.take_event(step, op.lanes[0])
            return [] if event is None else [event]
        return []

    # --- stages ---------------------------------------------------------------------------------

    def _lanes(self, running: Running) -> list[LaneContext]:
        return [running.context.lanes[i] for i in running.context.active(running.op)]

    def _embed(self, running: Running) -> None:
        for lane in self._lanes(running):
            ids = lane.token_ids
            sampled = self._slots.index_select(0, lane.token_rows)
            ids = torch.where(ids < 0, sampled, ids)
            hidden = self._model.embed(ids, lane.positions)
            self._put(running, STATE, lane, LayerState(positions=lane.positions, residual=hidden))

    def _run_pre(self, running: Running) -> None:
        layer = running.op.layer
        pre = self._model.stages(layer).pre
        self._stage(running, lambda state: self._model.run(pre, layer, state))

    def _run_post(self, running: Running) -> None:
        layer = running.op.layer
        post = self._model.stages(layer).post
        self._stage(running, lambda state: self._model.run(post, layer, state))

    def _stage(self, running: Running, run: Callable[[LayerState], None]) -> None:
        lanes = self._lanes(running)
        if not lanes:
            return
        states = [self._state(running, lane) for lane in lanes]
        joint = states[0] if len(states) == 1 else LayerState.cat(states)
        run(joint)
        parts = [joint] if len(states) == 1 else joint.split([lane.num_tokens for lane in lanes])
        shapes = running.context.program.template.lanes
        leaving = running.op.part is Part.PRE and len(states) > 1
        for index, state in zip(running.context.active(running.op), parts, strict=True):
            # a cohort that leaves the sweep must not keep the other lanes' activations alive
            kept = state.owned() if leaving and shapes[index].suspends else state
            self._put(running, STATE, running.context.lanes[index], kept)

    def _head(self, running: Running) -> None:
        for lane in self._lanes(running):
            hidden = self._state(running, lane).residual.index_select(0, lane.logits_index)
            self._put(running, LOGITS, lane, self._model.logits(hidden))

    def _load(self, running: Running) -> None:
        stream = self.weights.stream
        assert stream is not None
        stream.load(running.op.layer)

    def poison_weights(self, layer: int) -> None:
        """Make the slot that a streamed layer is coming to unusable until it is there."""
        stream = self.weights.stream
        assert stream is not None
        stream.slot(layer).fill_(0xFF)  # not a number in every floating-point type

    # --- attention ------------------------------------------------------------------------------

    def _stage_qkv(self, running: Running) -> None:
        for lane in self._lanes(running):
            tier, state = lane.tiers[Tier.HOST], self._state(running, lane)
            query, key, value = _qkv(state)
            staging = lane.host_staging
            if tier.plans is not None:
                staging.query.copy_(select(query, tier.attend))
            if tier.slots is not None:
                staging.key.copy_(select(key, tier.append))
                staging.value.copy_(select(value, tier.append))
            staged = (staging.query, staging.key, staging.value)
            self._put(running, HOST_QKV, lane, staged, Place.HOST)

    def _append(self, running: Running) -> None:
        tier_name = _tier(running.op)
        pages = self._kv.layer(tier_name, running.op.layer, running.op.queue)
        for lane in self._lanes(running):
            tier = lane.tiers[tier_name]
            if tier.planned_append is None:
                continue
            if tier_name is Tier.HOST:
                _, key, value = self._get(running, HOST_QKV, lane)
            else:
                _, key, value = _qkv(self._state(running, lane))
                key, value = select(key, tier.append), select(value, tier.append)
            self.kernels[tier_name].append(pages, key, value, tier.planned_append)

    def _attend(self, running: Running) -> None:
        tier_name = _tier(running.op)
        pages = self._kv.layer(tier_name, running.op.layer, running.op.queue)
        on_host = tier_name is Tier.HOST
        for lane in self._lanes(running):
            tier = lane.tiers[tier_name]
            if tier.plans is None:
                continue
            if on_host:
                query = self._get(running, HOST_QKV, lane)[0]
            else:
                query = select(_qkv(self._state(running, lane))[0], tier.attend)
            result = self.kernels[tier_name].attend(query, pages, tier.plans.of(running.op.layer))
            if on_host:
                staging = lane.host_staging
                staging.out.copy_(result.out)
                staging.lse.copy_(result.lse)
                staged = (staging.out, staging.lse)
                self._put(running, HOST_PARTIAL, lane, staged, Place.HOST)
            else:
                self._put(running, DEVICE_PARTIAL, lane, (result.out, result.lse))

    def _stage_partial(self, running: Running) -> None:
        for lane in self._lanes(running):
            if lane.tiers[Tier.HOST].plans is None:
                continue
            self._get(running, HOST_PARTIAL, lane)  # refuses what is still being written
            staging = lane.host_staging
            staged = (self._upload(staging.out), self._upload(staging.lse))
            self._put(running, STAGED_PARTIAL, lane, staged)

    def _merge(self, running: Running) -> None:
        shape = running.context.program.template.lanes
        for index in running.context.active(running.op):
            lane, state = (
                running.context.lanes[index],
                self._state(running, running.context.lanes[index]),
            )
            parts: list[tuple[torch.Tensor | None, Partial]] = []
            for tier, name, used in (
                (Tier.DEVICE, DEVICE_PARTIAL, shape[index].device),
                (Tier.HOST, STAGED_PARTIAL, shape[index].host),
            ):
                if used and lane.tiers[tier].plans is not None:
                    out, lse = self._get(running, name, lane)
                    parts.append((lane.tiers[tier].attend, (out, lse)))
            query = _qkv(state)[0]
            state.finish_attention(_merge_parts(query, parts).to(query.dtype))
            self._put(running, STATE, lane, state)

    # --- page copies ----------------------------------------------------------------------------

    def _copy_pages(self, running: Running) -> None:
        transfer = running.context.pages[(running.op.queue, running.op.ordinal)]
        source = self._kv.all_layers(transfer.source, running.op.queue)
        target = self._kv.all_layers(transfer.target, running.op.queue)
        source_ids = torch.from_numpy(transfer.source_blocks).long().to(source.device)
        target_ids = torch.from_numpy(transfer.target_blocks).long().to(target.device)
        self.kernels[Tier.HOST].copy_blocks(source, source_ids, target, target_ids)

    # --- buffers --------------------------------------------------------------------------------

    def _state(self, running: Running, lane: LaneContext) -> LayerState:
        state = self._buffers.get((STATE, lane.key), running.op.queue, running)
        assert isinstance(state, LayerState)
        return state

    def _get(self, running: Running, name: str, lane: LaneContext) -> tuple[torch.Tensor, ...]:
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


def _tier(op: ProgramOp) -> Tier:
    assert op.tier is not None
    return op.tier


def _qkv(state: LayerState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    assert state.q is not None
    assert state.k is not None
    assert state.v is not None
    return state.q, state.k, state.v


def _merge_parts(
    query: torch.Tensor, parts: list[tuple[torch.Tensor | None, Partial]]
) -> torch.Tensor:
    """Attention over disjoint parts of the KV: `[tokens, heads, head_dim]` in fp32.

    Args:
        query: [tokens, heads, head_dim]; gives shape and device only.
        parts: each (tokens it covers, or None for all; (out, lse) of those tokens).
    """
    if len(parts) == 1 and parts[0][0] is None:
        return parts[0][1][0]
    tokens, heads, dim = query.shape
    out = torch.zeros(tokens, heads, dim, device=query.device)
    lse = torch.full((tokens, heads), float("-inf"), device=query.device)
    for index, (part_out, part_lse) in parts:
        if index is None:
            out, lse = merge_states(out, lse, part_out, part_lse)
            continue
        merged = merge_states(out[index], lse[index], part_out, part_lse)
        out.index_copy_(0, index, merged[0])
        lse.index_copy_(0, index, merged[1])
    return out
