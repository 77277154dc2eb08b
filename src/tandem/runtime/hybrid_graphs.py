"""Sweeps over rows that decode, some of them attended to by the host, recorded once and launched as
one beside the host's part.

Launched operation by operation, a layer of such a step is a chain of eight operations on four
queues, each with a thread that must wake up for it: some milliseconds where the device needs a
tenth. Within a graph the layers' rows go down and come up by kernels that read and write host
memory, and counters take the place of threads on both sides
([ADR 0095](../../docs/adr/0095-hybrid-decode-as-one-graph.md)).
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.tier_kernels import MergingKernels, PlannedAttention, StaticKernels, TierKernels
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.plan.binding import LaneBinding, LongArray
from tandem.plan.decode_sweep import bucket_of
from tandem.plan.hybrid_sweep import hybrid_rows, hybrid_template, is_plain_sweep
from tandem.plan.program import Queue, StepProgram
from tandem.runtime.by_template import ByTemplate
from tandem.runtime.graph_logits import GraphLogits
from tandem.runtime.graph_maker import GraphMaker
from tandem.runtime.host_link import STEPS_TOLD, HostLink, LinkRows
from tandem.runtime.hybrid_inputs import HybridArrays, HybridInputs
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import LaneContext, TierContext
from tandem.runtime.layer_plans import LayerPlans
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.step_graphs import DecodeSizes, StepGraphs
from tandem.spec.tier import Tier

_NOTHING = TierContext(None, None, None, None, None)


class HybridGraphs(StepGraphs):
    """Takes programs that can be launched so, and runs the accelerator's part.

    Args:
        slots: int64 [rows]: the last sampled id of each row.
        kernels: of both tiers; the accelerator's are `StaticKernels` and `MergingKernels`.
        sizes: as of graphs of the accelerator alone. link: has a place for each row.
    """

    def __init__(
        self,
        model: Model,
        kv: KVStore,
        slots: Tensor,
        kernels: dict[Tier, TierKernels],
        sizes: DecodeSizes,
        link: HostLink,
        maker: GraphMaker,
    ) -> None:
        super().__init__(sizes, model.device, maker)
        self._model, self._kv, self._slots = model, kv, slots
        self._kernels, self._link = kernels, link
        rows = max(sizes.buckets)
        self._inputs = HybridInputs(rows, sizes.max_blocks, sizes.spare, model.device)
        self._is_plain = ByTemplate(is_plain_sweep)
        self._taken = 0

    # --- recorded -------------------------------------------------------------------------------

    def _fill(self, bucket: int, *, token: int, position: int) -> None:
        """Also the host's part, of one of the rows, as if it had been done."""
        own, size = self._sizes, self._sizes.block_size
        # the last row, so that places on the host are not those of rows
        last = np.array([bucket - 1])
        link = self._next(last, last)
        arrays = HybridArrays.alike(link, bucket, token, position, own.spare, size)
        self._bring(arrays)
        staging = self._link.staging(1, 1)
        staging.out.fill_(0.25)
        staging.lse.fill_(0.5)
        self._link.up.set(self._end(link))

    def _sweep(self, bucket: int) -> Tensor:
        inputs = self._inputs.of(bucket)
        ids, rows, positions, slots, here = inputs.numbers
        model, kernels = self._model, self._kernels[Tier.DEVICE]
        assert isinstance(kernels, StaticKernels)
        windows = self._sizes.windows
        plans = {w: kernels.plan_static(here, inputs.table, w) for w in set(windows)}
        put = kernels.plan_append(slots)
        ids = torch.where(ids < 0, self._slots.index_select(0, rows), ids)
        state = LayerState(positions, model.embed(ids, positions))
        for layer, window in enumerate(windows):
            stages = model.stages(layer)
            model.run(stages.pre, layer, state)
            self._attend(layer, state, plans[window], put, inputs.places)
            model.run(stages.post, layer, state)
        return model.logits(state.residual)

    def _attend(
        self,
        layer: int,
        state: LayerState,
        plan: PlannedAttention,
        put: Tensor,
        places: Tensor,
    ) -> None:
        kernels, query, key, value = self._kernels[Tier.DEVICE], state.q, state.k, state.v
        assert isinstance(kernels, MergingKernels)
        assert query is not None
        assert key is not None
        assert value is not None
        self._link.send(layer, query, key, value)
        pages = self._kv.layer(Tier.DEVICE, layer, Queue.ACCEL)
        kernels.append(pages, key, value, put)
        here = kernels.attend(query, pages, plan)
        there = self._link.receive(layer, len(query))
        state.finish_attention(
            kernels.merge(AttentionOutput(here.out, here.lse), there, places, query.dtype)
        )

    # --- steps ----------------------------------------------------------------------------------

    def take(self, program: StepProgram) -> ProgramContext | None:
        """The program as two operations; None if its operations are to be launched one by one."""
        if not program.lanes or not self._is_plain(program.template):
            return None
        slot, sizes = program.lanes[0], self._sizes
        bucket = bucket_of(slot.binding.num_tokens, self.buckets)
        if bucket is None:
            return None
        # of a row within a window it matters which keys lie where
        rows = hybrid_rows(program, sizes.block_size, splits=not any(sizes.windows))
        if rows is None:
            return None
        binding = slot.binding
        link = self._next(rows.there, rows.put_there)
        arrays = HybridArrays.of(binding, rows, link, bucket, sizes.spare, sizes.block_size)
        views = self._inputs.of(bucket).numbers
        lane = LaneContext(
            slot=slot,
            token_ids=views[0][: arrays.rows],
            token_rows=views[1][: arrays.rows],
            positions=views[2][: arrays.rows],
            logits_index=views[2][: arrays.rows],
            tiers={Tier.DEVICE: _NOTHING, Tier.HOST: self._host_part(binding)},
            staging=self._link.staging(len(link.rows), len(link.put)),
            hybrid=arrays,
        )
        return ProgramContext(replace(program, template=hybrid_template()), [lane])

    def _host_part(self, binding: LaneBinding) -> TierContext:
        kernels, append = self._kernels[Tier.HOST], binding.append.get(Tier.HOST)
        plans = LayerPlans.make(binding.attention[Tier.HOST], kernels, self._sizes.windows)
        if append is None:
            return TierContext(None, None, None, None, plans)
        slots = torch.from_numpy(append.slots)
        return TierContext(None, None, slots, kernels.plan_append(slots), plans)

    def run(self, arrays: HybridArrays) -> GraphLogits:
        """Launch a step; what it leaves holds until the next one is launched."""
        self._bring(arrays)
        return self._replayed(arrays.bucket, arrays.rows)

    @property
    def link(self) -> HostLink:
        """Counters and memory, for the host's part."""
        return self._link

    def release(self) -> None:
        """Have the accelerator go on, whatever the host has done: something failed."""
        end = self._taken * len(self._sizes.windows) & 0xFFFFFFFF
        with suppress(ValueError):  # it has come further meanwhile
            self._link.up.set(end)

    def _bring(self, arrays: HybridArrays) -> None:
        self._inputs.fill(arrays, self._maker)
        self._maker.bring(self._link.numbers_of(arrays.link), self._link.numbers)

    def _next(self, rows: LongArray, put: LongArray) -> LinkRows:
        number, self._taken = self._taken, self._taken + 1
        base = number * len(self._sizes.windows) & 0xFFFFFFFF
        return LinkRows(base, number % STEPS_TOLD, rows.astype(np.int32), put.astype(np.int32))

    def _end(self, link: LinkRows) -> int:
        return link.base + len(self._sizes.windows) & 0xFFFFFFFF
