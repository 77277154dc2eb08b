"""The end of a layer and the beginning of the next, recorded once and launched as one.

For steps of which the host, or a cohort, has a part: whoever attends, wherever rows' keys lie and
whichever lanes come together, between two layers' attention lies the same work over some tokens.
One graph for each layer and each of a few numbers of tokens, to which steps are padded
([ADR 0035](../../docs/adr/0035-hybrid-steps-as-graphs-between-attentions.md)).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.plan.decode_sweep import bucket_of
from tandem.plan.layer_launches import joined_stages
from tandem.plan.program import ProgramTemplate
from tandem.plan.template_builder import STATE
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.graph_maker import GraphError, GraphMaker, require_close
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates
from tandem.runtime.layer_memory import LayerMemory
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.recording import Recording, record_sizes
from tandem.runtime.running import Running

_KNOWN_TEMPLATES = 4096


_LaneState = tuple[LaneContext, LayerState]


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a graph did of the next layer, for its PRE to hand on."""

    context: ProgramContext
    layer: int
    states: list[_LaneState]


class LayerGraphs:
    """Runs POST and the next layer's PRE as one graph, where there is one.

    Args:
        buckets: numbers of tokens.

    Attributes:
        num_replayed: graphs launched.
        recording: what came of it.
    """

    def __init__(
        self, model: Model, buffers: BufferSpace, buckets: Sequence[int], maker: GraphMaker
    ) -> None:
        self._model, self._maker = model, maker
        self._num_layers = model.spec.num_layers
        self._wanted = tuple(buckets)
        self._states = LaneStates(buffers, STATE, Place.DEVICE)
        self._memory: LayerMemory | None = None
        self._graphs: dict[int, list[Callable[[], None]]] = {}
        self._templates: dict[int, tuple[ProgramTemplate, frozenset[int]]] = {}
        self._begun: _Begun | None = None
        self.num_replayed = 0
        self.recording = Recording()

    @property
    def buckets(self) -> tuple[int, ...]:
        """Numbers of tokens that have graphs of all layers, ascending."""
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
            memory, layers = whole.first(bucket), range(self._num_layers)
            self._graphs[bucket] = [self._checked(layer, memory) for layer in layers]
            self._memory = whole

    def _allocate(self, rows: int) -> LayerMemory:
        device, model = self._model.device, self._model
        positions = torch.zeros(rows, dtype=torch.int64, device=device)
        residual = torch.zeros(rows, model.spec.hidden_size, dtype=model.dtype, device=device)
        state = LayerState(positions, residual)
        model.run(model.stages(0).pre, 0, state)
        if len(state.rotations) != len(model.spec.ropes):
            raise GraphError("positions are first rotated behind the first layer")
        return LayerMemory.like(state)

    def _checked(self, layer: int, memory: LayerMemory) -> Callable[[], None]:
        """A graph that gives what its operations give, with other numbers than it was made with."""
        work = partial(self._between, layer, memory)
        _fill(memory, 3)
        work()  # compiles and allocates what is kept
        replay, _ = self._maker.record(work)
        _fill(memory, 5)
        replay()
        again = [tensor.to("cpu", copy=True) for tensor in _results(memory)]
        _fill(memory, 5)
        work()
        for replayed, computed in zip(again, _results(memory), strict=True):
            require_close(replayed, computed, f"layer {layer}'s results")
        return replay

    def _between(self, layer: int, memory: LayerMemory) -> Tensor:
        """From one attention to the next, or to the end."""
        model, state = self._model, memory.attended()
        model.run(model.stages(layer).post, layer, state)
        if layer + 1 < self._num_layers:
            model.run(model.stages(layer + 1).pre, layer + 1, state)
            memory.keep(state)
        return state.residual

    # --- steps ----------------------------------------------------------------------------------

    def run(self, running: Running) -> bool:
        """Launch a POST with the PRE that follows, if they can be; False: nothing was done."""
        op, context = running.op, running.context
        if op.ordinal not in self._joined(context.program.template):
            return False
        lanes = self._states.lanes(running)
        bucket = bucket_of(sum(lane.num_tokens for lane in lanes), self.buckets)
        if not lanes or bucket is None or self._memory is None:
            return False
        parts = self._memory.bring([self._states.get(running, lane) for lane in lanes])
        self._graphs[bucket][op.layer]()
        self.num_replayed += 1
        is_last = op.layer + 1 == self._num_layers
        shapes, begun = context.program.template.lanes, list[_LaneState]()
        for index, part in zip(context.active(op), parts, strict=True):
            lane = context.lanes[index]
            self._states.put(running, lane, part.state_of(lane.positions, computed=False))
            state = part.state_of(lane.positions, computed=True)
            # a cohort that leaves the sweep must not leave its activations to the next graph
            begun.append((lane, state.owned() if shapes[index].suspends and not is_last else state))
        self._begun = None if is_last else _Begun(context, op.layer + 1, begun)
        return True

    def has_begun(self, running: Running) -> bool:
        """Whether a PRE has been launched with the POST before it; nothing is left to do then."""
        begun, self._begun = self._begun, None
        if begun is None:
            return False
        assert begun.context is running.context
        assert begun.layer == running.op.layer
        for lane, state in begun.states:
            self._states.put(running, lane, state)
        return True

    def _joined(self, template: ProgramTemplate) -> frozenset[int]:
        known = self._templates.get(id(template))
        if known is None:  # kept with its template, so that no other can get the same id
            if len(self._templates) == _KNOWN_TEMPLATES:
                self._templates.clear()
            known = self._templates[id(template)] = (template, joined_stages(template))
        return known[1]


def _results(memory: LayerMemory) -> tuple[Tensor, ...]:
    return memory.residual, memory.q, memory.k, memory.v


def _fill(memory: LayerMemory, step: int) -> None:
    """Numbers between -1 and 1 without an order, others for each `step`."""
    flat = (tensor for pair in memory.rotations for tensor in pair)
    for tensor in (*_results(memory), memory.attention, *flat):
        count = torch.arange(tensor.numel(), device=tensor.device)
        numbers = (count * step % 11).to(tensor.dtype).sub_(5).div_(5)
        tensor.copy_(numbers.view(tensor.shape))
