"""Sweeps over rows that decode on the accelerator alone, recorded once and launched as one.

One graph for each of a few numbers of rows, to which steps are padded; all of them read the same
inputs and share their memory, since the accelerator's queue runs one after the other
([ADR 0032](../../docs/adr/0032-decode-as-graphs.md)).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.sampling import Likeliest
from tandem.kernels.tier_kernels import StaticKernels
from tandem.plan.binding import LaneBinding
from tandem.plan.decode_sweep import bucket_of, decode_template, decodes_on_accelerator
from tandem.plan.program import LaneShape, LaneSlot, ProgramTemplate, Queue, StepProgram
from tandem.plan.template_builder import LOGITS
from tandem.plan.templates import sweep_template
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.decode_inputs import BucketInputs, DecodeArrays, DecodeInputs
from tandem.runtime.graph_logits import GraphLogits
from tandem.runtime.graph_maker import GraphError, GraphMaker, require_close
from tandem.runtime.lane_context import LaneContext, TierContext
from tandem.runtime.layer_plans import LayerPlans
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.recording import Recording, record_sizes
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

_MAIN_LANE = 0
_NOTHING = TierContext(None, None, None, None, None)
_NO_IDS = np.zeros(0, dtype=np.int32)
_NO_NUMBERS = np.zeros(0, dtype=np.int64)
_NO_BINDING = LaneBinding(_NO_IDS, _NO_NUMBERS, _NO_NUMBERS, _NO_IDS, {}, {}, _NO_NUMBERS)


@dataclass(frozen=True, slots=True)
class DecodeSizes:
    """What graphs are recorded for.

    Attributes:
        buckets: numbers of rows. max_blocks: of a row.
        spare: the block on the device that is nobody's.
        windows: of each layer of the model.
    """

    buckets: tuple[int, ...]
    max_blocks: int
    spare: int
    block_size: int
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Recorded:
    replay: Callable[[], None]
    logits: Tensor
    lane: LaneContext


class DecodeGraphs:
    """Takes programs that can be launched as one, and runs them.

    Args:
        run: executes one operation of a sweep; what it leaves lies in `buffers`.
        kernels: of the device tier.

    Attributes:
        num_replayed: steps that ran as a graph.
        recording: what came of it.
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
        self._run, self._buffers, self._kernels = run, buffers, kernels
        self._sizes, self._maker = sizes, maker
        self._inputs = DecodeInputs(max(sizes.buckets), sizes.max_blocks, sizes.spare, device)
        rows = max(sizes.buckets)
        self._likeliest = Likeliest(
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.zeros(rows, dtype=torch.bool, device=device),
        )
        self._graphs: dict[int, _Recorded] = {}
        self.num_replayed = 0
        self.recording = Recording()

    @property
    def buckets(self) -> tuple[int, ...]:
        """Numbers of rows that have a graph, ascending."""
        return tuple(sorted(self._graphs))

    # --- recording ------------------------------------------------------------------------------

    def record(self, limit_s: float, limit_bytes: int) -> None:
        """See `record_sizes`; the largest bucket in any case."""
        self.recording = record_sizes(
            self._sizes.buckets, self._record, self._maker.taken_bytes, limit_s, limit_bytes,
            at_least=1,
        )  # fmt: skip

    def _record(self, bucket: int) -> None:
        try:
            with torch.inference_mode():
                self._graphs[bucket] = self._checked(bucket)
        finally:
            self._buffers.drop(_MAIN_LANE)

    def _checked(self, bucket: int) -> _Recorded:
        """A graph that gives what its operations give, with other numbers than it was made with."""
        inputs = self._inputs.of(bucket)
        template = sweep_template(len(self._sizes.windows), (LaneShape(),))
        lane = self._lane(inputs)

        def work() -> Tensor:
            logits = self._sweep(template, self._planned(lane, inputs))
            self._likeliest.first(bucket).find(logits)
            return logits

        self._fill(bucket, token=0, position=0)
        work()  # compiles and allocates what is kept
        replay, logits = self._maker.record(work)
        self._fill(bucket, token=1, position=1)
        self._likeliest.forget()
        replay()
        again = logits.to("cpu", copy=True)
        chose_likeliest = chose_likeliest_of(logits, self._likeliest.first(len(logits)))
        require_close(again, work(), "logits")
        if not chose_likeliest:
            raise GraphError("a graph's tokens are not the likeliest of its logits")
        return _Recorded(replay, logits, lane)

    def _fill(self, bucket: int, *, token: int, position: int) -> None:
        spare, size = self._sizes.spare, self._sizes.block_size
        arrays = DecodeArrays.alike(bucket, token, position, spare, size)
        self._inputs.fill(arrays, self._maker)

    def _sweep(self, template: ProgramTemplate, lane: LaneContext) -> Tensor:
        context = ProgramContext(StepProgram(0, template, (lane.slot,)), [lane])
        for op in template.ops:
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
        lane = replace(self._graphs[bucket].lane, slot=slot, decode=arrays)
        return ProgramContext(replace(program, template=decode_template()), [lane])

    def run(self, arrays: DecodeArrays) -> GraphLogits:
        """Launch a step; what it leaves holds until the next one is launched."""
        graph = self._graphs[arrays.bucket]
        self._inputs.fill(arrays, self._maker)
        graph.replay()
        self.num_replayed += 1
        return GraphLogits(graph.logits[: arrays.rows], self._likeliest.first(arrays.rows))


def chose_likeliest_of(logits: Tensor, chosen: Likeliest) -> bool:
    """Whether the tokens that a graph left are those of the logits that it left, exactly."""
    expected = Likeliest(torch.empty_like(chosen.token_ids), torch.empty_like(chosen.valid))
    expected.find(logits)
    return chosen.equals(expected)
