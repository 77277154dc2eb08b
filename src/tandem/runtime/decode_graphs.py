"""Sweeps over rows that decode on the accelerator alone, recorded once and launched as one
([ADR 0032](../../docs/adr/0032-decode-as-graphs.md)).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.tier_kernels import StaticKernels
from tandem.plan.binding import LaneBinding
from tandem.plan.decode_sweep import bucket_of, decode_template, decodes_on_accelerator
from tandem.plan.program import LaneShape, LaneSlot, Queue, StepProgram
from tandem.plan.template_builder import LOGITS
from tandem.plan.templates import sweep_template
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.decode_inputs import BucketInputs, DecodeArrays, DecodeInputs
from tandem.runtime.graph_logits import GraphLogits
from tandem.runtime.graph_maker import GraphMaker
from tandem.runtime.lane_context import LaneContext, TierContext
from tandem.runtime.layer_plans import LayerPlans
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.running import Running
from tandem.runtime.step_graphs import DecodeSizes, StepGraphs
from tandem.spec.tier import Tier

_MAIN_LANE = 0
_NOTHING = TierContext(None, None, None, None, None)
_NO_IDS = np.zeros(0, dtype=np.int32)
_NO_NUMBERS = np.zeros(0, dtype=np.int64)
_NO_BINDING = LaneBinding(_NO_IDS, _NO_NUMBERS, _NO_NUMBERS, _NO_IDS, {}, {}, _NO_NUMBERS)


class DecodeGraphs(StepGraphs):
    """Takes programs that can be launched as one, and runs them.

    Args:
        run: executes one operation of a sweep; what it leaves lies in `buffers`.
        kernels: of the device tier.
    """

    def __init__(
        self,
        run: Callable[[Running], None],
        buffers: BufferSpace,
        kernels: StaticKernels,
        sizes: DecodeSizes,
        device: torch.device,
        maker: GraphMaker,
    ) -> None:
        super().__init__(sizes, device, maker, at_least=1)
        self._run, self._buffers, self._kernels = run, buffers, kernels
        self._inputs = DecodeInputs(max(sizes.buckets), sizes.max_blocks, sizes.spare, device)
        self._template = sweep_template(len(sizes.windows), (LaneShape(),))
        self._lanes = {each: self._lane(self._inputs.of(each)) for each in sizes.buckets}

    # --- recorded -------------------------------------------------------------------------------

    def _record(self, bucket: int) -> None:
        try:
            super()._record(bucket)
        finally:
            self._buffers.drop(_MAIN_LANE)

    def _fill(self, bucket: int, *, token: int, position: int) -> None:
        spare, size = self._sizes.spare, self._sizes.block_size
        arrays = DecodeArrays.alike(bucket, token, position, spare, size)
        self._inputs.fill(arrays, self._maker)

    def _sweep(self, bucket: int) -> Tensor:
        lane = self._planned(self._lanes[bucket], self._inputs.of(bucket))
        context = ProgramContext(StepProgram(0, self._template, (lane.slot,)), [lane])
        for op in self._template.ops:
            self._run(Running(op, context))
        logits = self._buffers.get((LOGITS, _MAIN_LANE), Queue.ACCEL)
        assert isinstance(logits, Tensor)
        return logits

    def _lane(self, inputs: BucketInputs) -> LaneContext:
        """Tensors that stay where they are."""
        ids, rows, positions, _ = inputs.numbers
        return LaneContext(
            slot=LaneSlot(_NO_BINDING),
            token_ids=ids,
            token_rows=rows,
            positions=positions,
            logits_index=inputs.order,
            tiers={Tier.DEVICE: _NOTHING, Tier.HOST: _NOTHING},
            staging=None,
        )

    def _planned(self, lane: LaneContext, inputs: BucketInputs) -> LaneContext:
        """With what the kernels make of the numbers: part of what is recorded."""
        positions, slots = inputs.numbers[2], inputs.numbers[3]
        windows, kernels = self._sizes.windows, self._kernels
        plans = {w: kernels.plan_static(positions, inputs.table, w) for w in set(windows)}
        device = TierContext(
            None, None, slots, kernels.plan_append(slots), LayerPlans(plans, windows)
        )
        return replace(lane, tiers={Tier.DEVICE: device, Tier.HOST: _NOTHING})

    # --- steps ----------------------------------------------------------------------------------

    def take(self, program: StepProgram) -> ProgramContext | None:
        """The program as one operation; None if its operations are to be launched one by one."""
        if not decodes_on_accelerator(program):
            return None
        slot = program.lanes[0]
        bucket = bucket_of(slot.binding.num_tokens, self.buckets)
        if bucket is None:
            return None
        sizes = self._sizes
        arrays = DecodeArrays.of(slot.binding, bucket, sizes.spare, sizes.block_size)
        lane = replace(self._lanes[bucket], slot=slot, decode=arrays)
        return ProgramContext(replace(program, template=decode_template()), [lane])

    def run(self, arrays: DecodeArrays) -> GraphLogits:
        """Launch a step; what it leaves holds until the next one is launched."""
        self._inputs.fill(arrays, self._maker)
        return self._replayed(arrays.bucket, arrays.rows)
