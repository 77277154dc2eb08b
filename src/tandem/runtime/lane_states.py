"""The activations of lanes between operations, on the accelerator or in host memory."""

from collections.abc import Callable

import torch

from tandem.kernels.state import merge_states
from tandem.models.layer_state import LayerState
from tandem.plan.program import Part
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.running import Running

Partial = tuple[torch.Tensor, torch.Tensor]


class LaneStates:
    """The `LayerState` of each lane under one buffer's name."""

    def __init__(self, buffers: BufferSpace, name: str, place: Place) -> None:
        self._buffers = buffers
        self._name = name
        self._place = place

    @staticmethod
    def lanes(running: Running) -> list[LaneContext]:
        """Lanes that take part in an operation."""
        return [running.context.lanes[i] for i in running.context.active(running.op)]

    def get(self, running: Running, lane: LaneContext) -> LayerState:
        """A lane's state."""
        state = self._buffers.get((self._name, lane.key), running.op.queue, running)
        assert isinstance(state, LayerState)
        return state

    def put(self, running: Running, lane: LaneContext, state: LayerState) -> None:
        """Store a lane's state, whose size may have changed."""
        self._buffers.put((self._name, lane.key), self._place, state, running.op.queue)

    def run(self, running: Running, stage: Callable[[LayerState], None]) -> None:
        """A stage on all lanes together."""
        lanes = self.lanes(running)
        if not lanes:
            return
        states = [self.get(running, lane) for lane in lanes]
        joint = states[0] if len(states) == 1 else LayerState.cat(states)
        stage(joint)
        parts = [joint] if len(states) == 1 else joint.split([lane.num_tokens for lane in lanes])
        shapes = running.context.program.template.lanes
        leaving = running.op.part is Part.PRE and len(states) > 1
        for index, state in zip(running.context.active(running.op), parts, strict=True):
            # a cohort that leaves the sweep must not keep the other lanes' activations alive
            kept = state.owned() if leaving and shapes[index].suspends else state
            self.put(running, running.context.lanes[index], kept)


def qkv_of(state: LayerState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values of a state between PRE and the merge."""
    assert state.q is not None
    assert state.k is not None
    assert state.v is not None
    return state.q, state.k, state.v


def merge_parts(
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
