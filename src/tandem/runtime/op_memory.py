"""What an accelerator operation takes of memory while it runs, to be charged to the arena."""

import numpy as np

from tandem.kernels.logits import needs_adjustment
from tandem.memory.workspace import StepMemory
from tandem.plan.binding import SamplingRows
from tandem.plan.block_shape import MADE_AT_ONCE
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.template_builder import PARTS_OF_WEIGHTS, STATE
from tandem.runtime.buffers import BufferSpace, size_bytes
from tandem.runtime.running import Running

_CPU_COLUMNS = PARTS_OF_WEIGHTS[Part.CPU_COLUMNS]


class OpMemory:
    """Bytes of an operation's own buffers: results and intermediates, as long as it runs.

    Results go to the `BufferSpace` when the operation ends, which charges them from then on.
    Attention's gathers are left out (`KERNEL_SCRATCH_BYTES`).
    """

    def __init__(self, memory: StepMemory, buffers: BufferSpace, device_type: str) -> None:
        self._memory = memory
        self._buffers = buffers
        self._device_type = device_type

    def __call__(self, running: Running) -> int:
        """Bytes that the operation takes on the accelerator beside what lies there already."""
        op = running.op
        if op.queue is not Queue.ACCEL:
            return 0
        if op.kind is OpKind.SAMPLE:
            return sum(self._sample_bytes(running.context.program.sampling[i]) for i in op.lanes)
        memory = self._memory
        if op.part is Part.PRE:
            rotation = memory.rotation_token_bytes if op.layer == 0 else 0
            return self._stage_bytes(running, memory.pre_token_bytes + rotation)
        if op.part is Part.RECOMPUTE:
            return memory.pre_token_bytes * _recomputed_tokens(running)
        if op.part is Part.POST:
            divided = any(ref.name == _CPU_COLUMNS for ref in op.reads)
            size = memory.columns_token_bytes if divided else memory.post_token_bytes
            return self._stage_bytes(running, size)
        if op.part is Part.COLUMNS:
            return self._stage_bytes(running, memory.columns_token_bytes)
        if op.part is Part.OUTPUT:
            return self._stage_bytes(running, memory.output_token_bytes)
        if op.part is Part.ROUTE:
            return self._stage_bytes(running, memory.route_token_bytes)
        if op.part is Part.EXPERTS:
            return self._stage_bytes(running, memory.experts_token_bytes)
        lanes = [running.context.lanes[i] for i in running.context.active(op)]
        if op.part is Part.HEAD:
            return memory.head_bytes(sum(len(lane.logits_index) for lane in lanes))
        tokens = sum(lane.num_tokens for lane in lanes)
        if op.kind is OpKind.ATTEND:
            return tokens * memory.attend_token_bytes
        if op.kind is OpKind.MERGE and len(op.reads) > 1:
            return tokens * memory.merge_token_bytes
        return 0

    def _stage_bytes(self, running: Running, token_bytes: int) -> int:
        """The stage itself, and the copy that brings several lanes together."""
        lanes = [running.context.lanes[i] for i in running.context.active(running.op)]
        joined = 0
        if len(lanes) > 1:
            keys = [(STATE, lane.key) for lane in lanes]
            joined = sum(
                size_bytes(self._buffers.get(key, running.op.queue, running)) for key in keys
            )
        return joined + token_bytes * sum(lane.num_tokens for lane in lanes)

    def _sample_bytes(self, rows: SamplingRows) -> int:
        count = len(rows.rows)
        whole = np.array_equal(rows.logits_index, np.arange(count))
        copies = int(not whole) + int(needs_adjustment(rows))
        draws = not rows.greedy or rows.logprobs is not None
        return self._memory.sample_bytes(count, copies, self._device_type, draws=draws)


def _recomputed_tokens(running: Running) -> int:
    """At once."""
    lanes = [running.context.lanes[i] for i in running.context.active(running.op)]
    prefixes = [lane.passing.prefix for lane in lanes if lane.passing is not None]
    tokens = sum(len(prefix.positions) for prefix in prefixes if prefix is not None)
    return min(tokens, MADE_AT_ONCE)
