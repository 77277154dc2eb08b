"""The maths of every operation, the same for all interpreters."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.prompt_kernels import NewKeys, PromptKernels
from tandem.kernels.tier_kernels import MergingKernels, TierKernels
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.models.weight_stream import WeightStream
from tandem.plan.events import Event, LaneAdvanced, LaneDone, TransferDone
from tandem.plan.program import EventKind, OpKind, Part, ProgramOp
from tandem.plan.template_builder import (
    DEVICE_PARTIAL,
    EXPERT_SUM,
    HOST_PARTIAL,
    HOST_QKV,
    LOGITS,
    STAGED_PARTIAL,
    STAGED_QKV,
    STATE,
)
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.cpu_layer_ops import CpuLayerOps
from tandem.runtime.host_copies import HostCopies
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import LaneContext, TierContext
from tandem.runtime.lane_states import LaneStates, Partial, merge_parts, qkv_of
from tandem.runtime.layer_plans import select
from tandem.runtime.page_moves import PageMoves
from tandem.runtime.passing_memory import PassingMemory
from tandem.runtime.running import Running
from tandem.runtime.sampling_ops import SamplingOps
from tandem.spec.operations import Stage
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.runtime.block_ops import BlockOps
    from tandem.runtime.decode_graphs import DecodeGraphs
    from tandem.runtime.hybrid_graphs import HybridGraphs
    from tandem.runtime.layer_graphs import LayerGraphs


class OpRunner:
    """Executes single operations against an executor's memory.

    Args:
        slots: int64 [rows] on the accelerator: the last sampled id of each row (contract 6).
        upload: brings a host tensor to the accelerator on the current queue.
        kernels: what attends and appends in each tier.
        passing: memory of KV that passes through the accelerator; the programs are then those of a
            block, else sweeps.
        staged: the accelerator's kernels for pages of the host's type; None: pages are of one type.
        pinned: as `StagingShape.pinned`, for layers of sweeps on the CPU.

    Attributes:
        graphs: what SWEEP operations run; None: there are none. hybrid: what those run of which
            the host has a part.
        layer_graphs: what runs other sweeps' POST and PRE, where it can; None: there are none.
        moves: KV blocks between the tiers.
    """

    def __init__(
        self,
        model: Model,
        kv: KVStore,
        buffers: BufferSpace,
        slots: torch.Tensor,
        upload: Callable[[torch.Tensor], torch.Tensor],
        kernels: dict[Tier, TierKernels],
        passing: PassingMemory | None = None,
        staged: TierKernels | None = None,
        pinned: Callable[[int], torch.Tensor] | None = None,
    ) -> None:
        self._model = model
        self.weights = model.weights
        self.expert_hits = model.expert_hits
        self._kv = kv
        self._buffers = buffers
        self._slots = slots
        self._upload = upload
        self.kernels = kernels
        self._states = LaneStates(buffers, STATE, Place.DEVICE)
        self.sampling = SamplingOps(buffers, slots, upload)
        self.blocks: BlockOps | None = None
        self.graphs: DecodeGraphs | None = None
        self.layer_graphs: LayerGraphs | None = None
        self.hybrid: HybridGraphs | None = None
        self.moves = PageMoves(kv, kernels, kernels[Tier.DEVICE] if staged is None else staged)
        if passing is None:
            copies = HostCopies(upload, pinned)
            self._special = CpuLayerOps(model.host, buffers, model.dtype, copies).table
        else:
            # Imported where there are blocks: a first token waits for what is imported.
            from tandem.runtime import block_ops

            self.blocks = block_ops.BlockOps(
                model, kv, passing, buffers, kernels, upload, self.sampling
            )
            self._special = self.blocks.table
        self._table: dict[tuple[OpKind, Part], Callable[[Running], None]] = {
            (OpKind.STAGE, Part.EMBED): self._embed,
            (OpKind.STAGE, Part.PRE): self._run_pre,
            (OpKind.STAGE, Part.POST): self._run_post,
            (OpKind.STAGE, Part.OUTPUT): self._run_output,
            (OpKind.STAGE, Part.ROUTE): self._run_route,
            (OpKind.STAGE, Part.EXPERTS): self._run_experts,
            (OpKind.STAGE, Part.HEAD): self._head,
            (OpKind.APPEND, Part.NONE): self._append,
            (OpKind.ATTEND, Part.NONE): self._attend,
            (OpKind.COPY, Part.QKV): self._stage_qkv,
            (OpKind.COPY, Part.PARTIAL): self._stage_partial,
            (OpKind.COPY, Part.PAGES): self.moves.move,
            (OpKind.COPY, Part.TOKENS): self.sampling.fetch_tokens,
            (OpKind.MERGE, Part.NONE): self._merge,
            (OpKind.SAMPLE, Part.NONE): self.sampling.sample,
            (OpKind.LOAD, Part.NONE): self._load,
            (OpKind.LOAD, Part.MLP): self._load,
            (OpKind.LOAD, Part.PRE): self._load,
            (OpKind.LOAD, Part.POST): self._load,
            (OpKind.LOAD, Part.KEYS_VALUES): self._load,
            (OpKind.LOAD, Part.QUERIES): self._load,
            (OpKind.LOAD, Part.COLUMNS): self._load,
            (OpKind.LOAD, Part.CPU_COLUMNS): self._load,
            (OpKind.READ, Part.NONE): self._read,
            (OpKind.SWEEP, Part.NONE): self._sweep,
        }

    def run(self, running: Running) -> None:
        """Execute one operation; lanes whose guard failed are left out."""
        op = running.op
        execute = self._special.get((op.kind, op.part, op.queue))
        execute = execute or self._table[(op.kind, op.part)]
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

    def _embed(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            ids = lane.token_ids
            sampled = self._slots.index_select(0, lane.token_rows)
            ids = torch.where(ids < 0, sampled, ids)
            hidden = self._model.embed(ids, lane.positions)
            state = LayerState(positions=lane.positions, residual=hidden)
            self._states.put(running, lane, state)

    def _run_pre(self, running: Running) -> None:
        if self.layer_graphs is None or not self.layer_graphs.run(running):
            self._run_stage(running, self._model.stages(running.op.layer).pre)

    def _run_post(self, running: Running) -> None:
        if self.layer_graphs is None or not self.layer_graphs.run(running):
            self._run_stage(running, self._model.stages(running.op.layer).post)

    def _run_output(self, running: Running) -> None:
        self._run_stage(running, self._model.output_stage(running.op.layer))

    def _run_route(self, running: Running) -> None:
        self._run_stage(running, self._model.route_stage(running.op.layer))

    def _run_experts(self, running: Running) -> None:
        lanes = self._states.lanes(running)
        if not lanes:
            return
        joint = LayerState.cat([self._states.get(running, lane) for lane in lanes])
        total = self._model.expert_sum(running.op.layer, joint)
        sizes = [lane.num_tokens for lane in lanes]
        for lane, part in zip(lanes, total.split(sizes), strict=True):
            self._put(running, EXPERT_SUM, lane, (part,))

    def _run_stage(self, running: Running, stage: Stage) -> None:
        layer = running.op.layer
        self._states.run(running, lambda state: self._model.run(stage, layer, state))

    def _head(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            hidden = self._states.get(running, lane).residual.index_select(0, lane.logits_index)
            self._put(running, LOGITS, lane, self._model.logits(hidden))

    def _sweep(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            if lane.hybrid is not None:
                assert self.hybrid is not None
                self._put(running, LOGITS, lane, self.hybrid.run(lane.hybrid))
                continue
            assert self.graphs is not None
            assert lane.decode is not None
            self._put(running, LOGITS, lane, self.graphs.run(lane.decode))

    @property
    def _stream(self) -> WeightStream:
        assert self.weights.stream is not None
        return self.weights.stream

    def _load(self, running: Running) -> None:
        self._stream.load(running.op.layer, running.op.part)

    def _read(self, running: Running) -> None:
        del running  # the reader knows the order
        self._stream.read()

    def poison_weights(self, op: ProgramOp) -> None:
        """Make memory that weights are coming to unusable until they are there."""
        stream = self._stream
        given_up = [stream.let_go()] if op.kind is OpKind.READ else stream.places(op.layer, op.part)
        for memory in given_up:
            memory.fill_(0xFF)  # not a number in every floating-point type

    # --- attention ------------------------------------------------------------------------------

    def _stage_qkv(self, running: Running) -> None:
        # Nothing here waits for the copies: the CPU's work begins when this operation has ended.
        for lane in self._states.lanes(running):
            tier, state = lane.tiers[Tier.HOST], self._states.get(running, lane)
            query, key, value = qkv_of(state)
            staging = lane.host_staging
            if tier.plans is not None:
                staging.query.copy_(select(query, tier.attend), non_blocking=True)
            if tier.slots is not None:
                staging.key.copy_(select(key, tier.append), non_blocking=True)
                staging.value.copy_(select(value, tier.append), non_blocking=True)
            staged = (staging.query, staging.key, staging.value)
            self._put(running, HOST_QKV, lane, staged, Place.HOST)

    def _append(self, running: Running) -> None:
        tier_name = _tier(running.op)
        pages = self._kv.layer(tier_name, running.op.layer, running.op.queue)
        for lane in self._states.lanes(running):
            tier = lane.tiers[tier_name]
            if tier.planned_append is None:
                continue
            if tier_name is Tier.HOST:
                _, key, value = self._get(running, HOST_QKV, lane)
            else:
                _, key, value = self._device_qkv(running, lane)
                key, value = select(key, tier.append), select(value, tier.append)
            self.kernels[tier_name].append(pages, key, value, tier.planned_append)

    def _attend(self, running: Running) -> None:
        tier_name = _tier(running.op)
        pages = self._kv.layer(tier_name, running.op.layer, running.op.queue)
        on_host = tier_name is Tier.HOST
        for lane in self._states.lanes(running):
            tier = lane.tiers[tier_name]
            if tier.plans is None:
                continue
            if on_host:
                query = self._get(running, HOST_QKV, lane)[0]
            else:
                query = select(self._device_qkv(running, lane)[0], tier.attend)
            result = self._attended(running, lane, query, pages)
            if on_host:
                staging = lane.host_staging
                staging.out.copy_(result.out)
                staging.lse.copy_(result.lse)
                staged = (staging.out, staging.lse)
                self._put(running, HOST_PARTIAL, lane, staged, Place.HOST)
            else:
                self._put(running, DEVICE_PARTIAL, lane, (result.out, result.lse))
                if _is_staged(running.op):  # the arena counts it for this layer only
                    self._buffers.discard((STAGED_QKV, lane.key), running.op.queue)

    def _attended(
        self, running: Running, lane: LaneContext, query: torch.Tensor, pages: torch.Tensor
    ) -> AttentionOutput:
        tier_name = _tier(running.op)
        tier, kernels = lane.tiers[tier_name], self.kernels[tier_name]
        assert tier.plans is not None
        planned = tier.plans.of(running.op.layer)
        # a prompt's own keys need not be looked for where they were just put
        if isinstance(kernels, PromptKernels) and _is_whole(tier):
            _, key, value = self._device_qkv(running, lane)
            return kernels.attend(query, pages, planned, NewKeys(key, value))
        return kernels.attend(query, pages, planned)

    def _device_qkv(self, running: Running, lane: LaneContext) -> tuple[torch.Tensor, ...]:
        """Of a layer computed here, or staged by one that the CPU computes."""
        if _is_staged(running.op):
            return self._get(running, STAGED_QKV, lane)
        return qkv_of(self._states.get(running, lane))

    def _stage_partial(self, running: Running) -> None:
        for lane in self._states.lanes(running):
            if lane.tiers[Tier.HOST].plans is None:
                continue
            self._get(running, HOST_PARTIAL, lane)  # refuses what is still being written
            staging = lane.host_staging
            staged = (self._upload(staging.out), self._upload(staging.lse))
            self._put(running, STAGED_PARTIAL, lane, staged)

    def _merge(self, running: Running) -> None:
        shape = running.context.program.template.lanes
        for index in running.context.active(running.op):
            lane = running.context.lanes[index]
            state = self._states.get(running, lane)
            parts: list[tuple[torch.Tensor | None, Partial]] = []
            for tier, name, used in (
                (Tier.DEVICE, DEVICE_PARTIAL, shape[index].device),
                (Tier.HOST, STAGED_PARTIAL, shape[index].host),
            ):
                if used and lane.tiers[tier].plans is not None:
                    out, lse = self._get(running, name, lane)
                    parts.append((lane.tiers[tier].attend, (out, lse)))
            state.finish_attention(self._merged(qkv_of(state)[0], lane, parts))
            self._states.put(running, lane, state)

    def _merged(
        self,
        query: torch.Tensor,
        lane: LaneContext,
        parts: list[tuple[torch.Tensor | None, Partial]],
    ) -> torch.Tensor:
        """Attention over all parts, in the queries' type."""
        if lane.places is None or len(parts) != 2:
            return merge_parts(query, parts).to(query.dtype)
        kernels = self.kernels[Tier.DEVICE]
        assert isinstance(kernels, MergingKernels)
        here, there = (AttentionOutput(*part) for _, part in parts)
        return kernels.merge(here, there, lane.places, query.dtype)

    # --- buffers --------------------------------------------------------------------------------

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


def _is_staged(op: ProgramOp) -> bool:
    return any(ref.name == STAGED_QKV for ref in op.reads)


def _is_whole(tier: TierContext) -> bool:
    """Whether all tokens of a lane attend and append in a tier."""
    return tier.attend is None and tier.append is None and tier.slots is not None
