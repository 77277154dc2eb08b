"""Copies of keys, values and activations between the host and the slots they pass through."""

from collections.abc import Callable

import torch

from tandem.kernels.tier_kernels import TierKernels
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.template_builder import QKV, STATE
from tandem.runtime.block_lanes import is_of_prompts, lanes_of, slot_of
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates
from tandem.runtime.layer_plans import select
from tandem.runtime.passing_memory import PassingMemory
from tandem.runtime.poison import PAGE_POISON, poison_run, poison_slots
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

_CPU = torch.device("cpu")


class PassingCopies:
    """The CACHE and PREFIX copies of a block's programs."""

    def __init__(
        self,
        kv: KVStore,
        passing: PassingMemory,
        buffers: BufferSpace,
        kernels: dict[Tier, TierKernels],
    ) -> None:
        self._kv = kv
        self._passing = passing
        self._buffers = buffers
        self._kernels = kernels
        self._states = LaneStates(buffers, STATE, Place.DEVICE)
        self.table: dict[tuple[OpKind, Part, Queue], Callable[[Running], None]] = {
            (OpKind.COPY, Part.CACHE, Queue.H2D): self._load,
            (OpKind.COPY, Part.CACHE, Queue.D2H): self._store,
            (OpKind.COPY, Part.PREFIX, Queue.H2D): self._load_prefix,
            (OpKind.COPY, Part.PREFIX, Queue.D2H): self._store_prefix,
        }

    # --- keys and values --------------------------------------------------------------------------

    def _load(self, running: Running) -> None:
        pages = self._host_pages(running)
        for index, lane in lanes_of(running):
            slot = self._passing.slots[slot_of(running, index)]
            for run in () if lane.passing is None else lane.passing.runs:
                source = pages[run.host_block : run.host_block + run.count]
                target = slot[run.slot_block : run.slot_block + run.count]
                target.copy_(source, non_blocking=True)

    def _store(self, running: Running) -> None:
        for index, lane in lanes_of(running):
            if lane.passing is None:
                continue
            if is_of_prompts(running):
                self._store_blocks(running, index, lane)
            else:
                self._store_tokens(running, lane)

    def _store_blocks(self, running: Running, index: int, lane: LaneContext) -> None:
        assert lane.passing is not None
        pages, slot = self._host_pages(running), self._passing.slots[slot_of(running, index)]
        for run in lane.passing.runs:
            source = slot[run.slot_block : run.slot_block + run.count]
            target = pages[run.host_block : run.host_block + run.count]
            target.copy_(source, non_blocking=True)

    def _store_tokens(self, running: Running, lane: LaneContext) -> None:
        passing = lane.passing
        assert passing is not None
        assert passing.planned_store is not None
        value = self._buffers.get((QKV, lane.key), running.op.queue, running)
        assert isinstance(value, tuple)
        key, value = (select(each, passing.append).to(_CPU) for each in value[1:])
        pages = self._host_pages(running)
        self._kernels[Tier.HOST].append(pages, key, value, passing.planned_store)

    def _host_pages(self, running: Running) -> torch.Tensor:
        return self._kv.layer(Tier.HOST, running.op.layer, running.op.queue)

    # --- activations of recomputed prefixes -------------------------------------------------------

    def _load_prefix(self, running: Running) -> None:
        kept = self._passing.activations[running.op.layer]
        for index, lane in lanes_of(running):
            if lane.passing is None or lane.passing.prefix is None:
                continue
            slot, at = self._passing.prefixes[slot_of(running, index)], 0
            for first, count in lane.passing.prefix.runs:
                slot[at : at + count].copy_(kept[first : first + count], non_blocking=True)
                at += count

    def _store_prefix(self, running: Running) -> None:
        kept = self._passing.activations[running.op.layer]
        for _, lane in lanes_of(running):
            if lane.passing is None or lane.passing.prefix is None:
                continue
            prefix = lane.passing.prefix
            residual = self._states.get(running, lane).residual.index_select(0, prefix.tokens)
            at = 0
            for first, count in prefix.runs:
                kept[first : first + count].copy_(residual[at : at + count], non_blocking=True)
                at += count

    # --- poison -----------------------------------------------------------------------------------

    def poison(self, running: Running) -> None:
        """Spoil what a copy is about to write, so that reading it too early fails a test."""
        part, loads = running.op.part, running.op.queue is Queue.H2D
        page = self._kv.page.on(Tier.HOST)
        for index, lane in lanes_of(running):
            passing = lane.passing
            if passing is None:
                continue
            slot = slot_of(running, index)
            if part is Part.CACHE:
                pages = self._passing.slots[slot] if loads else self._host_pages(running)
                if passing.stored is not None and not loads:
                    poison_slots(pages, passing.stored, page)
                    continue
                for run in passing.runs:
                    first = run.slot_block if loads else run.host_block
                    poison_run(pages, first, run.count, page)
            elif passing.prefix is not None and loads:
                self._passing.prefixes[slot, : len(passing.prefix.positions)] = PAGE_POISON
            elif passing.prefix is not None:
                kept = self._passing.activations[running.op.layer]
                for first, count in passing.prefix.runs:
                    kept[first : first + count] = PAGE_POISON
