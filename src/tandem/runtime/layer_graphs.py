"""The end of a layer and the beginning of the next, recorded once and launched as one.

For steps of which the host, or a cohort, has a part, and of models whose layers are not all on the
accelerator: whoever attends, wherever rows' keys lie and whichever lanes come together, between two
layers' attention lies the same work over some tokens. One graph for each layer and each of a few
numbers of tokens, to which steps are padded; beside a layer that is not resident, its neighbours'
halves ([ADR 0035](../../docs/adr/0035-hybrid-steps-as-graphs-between-attentions.md),
[0096](../../docs/adr/0096-resident-layers-of-mixed-placements-as-graphs.md)).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.plan.decode_sweep import bucket_of
from tandem.plan.layer_launches import LayerPart, layer_parts
from tandem.plan.template_builder import STATE
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.by_template import ByTemplate
from tandem.runtime.graph_maker import GraphError, GraphMaker, require_close
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates
from tandem.runtime.layer_memory import LayerMemory
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.recording import Recording, record_sizes
from tandem.runtime.running import Running

_LaneState = tuple[LaneContext, LayerState]


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a graph did of the next layer, for its PRE to hand on."""

    context: ProgramContext
    layer: int
    states: list[_LaneState]


class LayerGraphs:
    """Runs POST and the next layer's PRE as one graph, where there is one, or each by itself.

    Args:
        parts: what can be recorded: of layers on the device.
        buckets: numbers of tokens.

    Attributes:
        num_replayed: graphs launched.
        recording: what came of it.
    """

    def __init__(
        self,
        model: Model,
        buffers: BufferSpace,
        parts: Sequence[LayerPart],
        buckets: Sequence[int],
        maker: GraphMaker,
    ) -> None:
        self._model, self._maker, self._parts = model, maker, tuple(parts)
        self._wanted = tuple(buckets)
        self._states = LaneStates(buffers, STATE, Place.DEVICE)
        self._memory: LayerMemory | None = None
        self._graphs: dict[int, dict[LayerPart, Callable[[], None]]] = {}
        self._parts_of = ByTemplate(layer_parts)
        self._begun: _Begun | None = None
        self.num_replayed = 0
        self.recording = Recording()

    @property
    def buckets(self) -> tuple[int, ...]:
        """Numbers of tokens that have graphs of all parts, ascending."""
        return tuple(sorted(self._graphs))

    # --- recording ------------------------------------------------------------------------------

    def record(self, limit_s: float, limit_bytes: int) -> None:
        """See `record_sizes`."""
        self.recording = record_sizes(
            self._wanted, self._record, self._maker.taken_bytes, limit_s, limit_bytes
        )

    def _record(self, bucket: int) -> None:
        with torch.inference_mode():
            # of the largest that can be recorded, which is the first
            whole = self._allocate(bucket) if self._memory is None else self._memory
            memory = whole.first(bucket)
            self._graphs[bucket] = {part: self._checked(part, memory) for part in self._parts}
            self._memory = whole

    def _allocate(self, rows: int) -> LayerMemory:
        device, model = self._model.device, self._model
        positions = torch.zeros(rows, dtype=torch.int64, device=device)
        residual = torch.zeros(rows, model.spec.hidden_size, dtype=model.dtype, device=device)
        state = LayerState(positions, residual)
        layer = _first_begun(self._parts)
        model.run(model.stages(layer).pre, layer, state)
        if len(state.rotations) != len(model.spec.ropes):
            raise GraphError("positions are first rotated behind the first layer")
        return LayerMemory.like(state)

    def _checked(self, part: LayerPart, memory: LayerMemory) -> Callable[[], None]:
        """A graph that gives what its operations give, with other numbers than it was made with."""
        work = partial(self._between, part, memory)
        _fill(memory, 3)
        work()  # compiles and allocates what is kept
        replay, _ = self._maker.record(work)
        _fill(memory, 5)
        replay()
        again = [tensor.to("cpu", copy=True) for tensor in _results(memory)]
        _fill(memory, 5)
        work()
        for replayed, computed in zip(again, _results(memory), strict=True):
            require_close(replayed, computed, f"{_name(part)}'s results")
        return replay

    def _between(self, part: LayerPart, memory: LayerMemory) -> Tensor:
        """From one attention to the next, or as far as the part goes."""
        model, state = self._model, memory.entered(attended=part.ends is not None)
        if part.ends is not None:
            model.run(model.stages(part.ends).post, part.ends, state)
        if part.begins is not None:
            model.run(model.stages(part.begins).pre, part.begins, state)
            memory.keep(state)
        return state.residual

    # --- steps ----------------------------------------------------------------------------------

    def run(self, running: Running) -> bool:
        """Launch a POST with the PRE that follows, or one of both, if they can be; of a PRE that
        has been launched so, hand on what it left. False: nothing was done.
        """
        if self._begun is not None:
            self._hand_on(self._begun, running)
            return True
        op, context = running.op, running.context
        part = self._parts_of(context.program.template).get(op.ordinal)
        lanes = self._states.lanes(running)
        bucket = bucket_of(sum(lane.num_tokens for lane in lanes), self.buckets)
        if part is None or not lanes or bucket is None or self._memory is None:
            return False
        replay = self._graphs[bucket].get(part)
        states = [self._states.get(running, lane) for lane in lanes]
        if replay is None or not self._memory.takes(states):
            return False
        parts = self._memory.bring(states)
        replay()
        self.num_replayed += 1
        begun = self._leave(running, part, parts)
        if part.ends is not None and part.begins is not None:
            self._begun = _Begun(context, part.begins, begun)
        else:
            self._put(running, begun)
        return True

    def _leave(
        self, running: Running, part: LayerPart, parts: Sequence[LayerMemory]
    ) -> list[_LaneState]:
        """What a graph left of each lane, at its end; of a POST with a PRE, also between them."""
        context, shapes = running.context, running.context.program.template.lanes
        begun = list[_LaneState]()
        for index, memory in zip(context.active(running.op), parts, strict=True):
            lane = context.lanes[index]
            if part.ends is not None and part.begins is not None:
                middle = memory.state_of(lane.positions, computed=False)
                self._put(running, [(lane, middle)])
            state = memory.state_of(lane.positions, computed=part.begins is not None)
            # a cohort that leaves the sweep must not leave its activations to the next graph
            begun.append((lane, state.owned() if shapes[index].suspends else state))
        return begun

    def _hand_on(self, begun: _Begun, running: Running) -> None:
        assert begun.context is running.context
        assert begun.layer == running.op.layer
        self._begun = None
        self._put(running, begun.states)

    def _put(self, running: Running, states: Sequence[_LaneState]) -> None:
        for lane, state in states:
            self._states.put(running, lane, state)


def _first_begun(parts: Sequence[LayerPart]) -> int:
    """The first layer whose PRE can be looked at."""
    for part in parts:
        if part.ends == 0:
            return 0
        if part.begins is not None:
            return part.begins
    raise GraphError("no layer's queries are computed where graphs are")


def _name(part: LayerPart) -> str:
    return f"layer {part.begins if part.ends is None else part.ends}"


def _results(memory: LayerMemory) -> tuple[Tensor, ...]:
    return memory.residual, memory.q, memory.k, memory.v


def _fill(memory: LayerMemory, step: int) -> None:
    """Numbers between -1 and 1 without an order, others for each `step`."""
    flat = (tensor for pair in memory.rotations for tensor in pair)
    for tensor in (*_results(memory), memory.attention, *flat):
        count = torch.arange(tensor.numel(), device=tensor.device)
        numbers = (count * step % 11).to(tensor.dtype).sub_(5).div_(5)
        tensor.copy_(numbers.view(tensor.shape))
