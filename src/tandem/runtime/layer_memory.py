"""Memory in which graphs of layers find activations, and leave them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tandem.models.layer_state import LayerState
from tandem.models.rotary import Rotation
from tandem.runtime.graph_maker import GraphError
from tandem.runtime.lane_states import qkv_of

_IN_A_LAYER = {"residual", "q", "k", "v"}  # that live from PRE to attention


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Of as many tokens as a graph has at most; all graphs use it, one after the other.

    Attributes:
        residual: [T, hidden]. attention: [T, heads, head_dim]. q, k, v: as in `LayerState`.
        positions: int64 [T]; zeros, since rotations are kept.
    """

    positions: Tensor
    residual: Tensor
    attention: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    rotations: tuple[Rotation, ...]

    @staticmethod
    def like(state: LayerState) -> "LayerMemory":
        """As large as a state between PRE and attention.

        Raises:
            GraphError: it holds what is not known here.
        """
        unknown = set(state.buffers()) ^ _IN_A_LAYER
        if unknown:
            raise GraphError(f"a layer keeps {', '.join(sorted(unknown))} through attention")
        q, k, v = (_zeros(part) for part in qkv_of(state))
        return LayerMemory(
            _zeros(state.positions),
            _zeros(state.residual),
            torch.zeros_like(q),
            q,
            k,
            v,
            tuple((_zeros(cos), _zeros(sin)) for cos, sin in state.rotations),
        )

    def first(self, rows: int) -> "LayerMemory":
        """Views of the memory of the first tokens."""
        return self.part(0, rows)

    def part(self, start: int, rows: int) -> "LayerMemory":
        """Views of the memory of consecutive tokens."""

        def view(tensor: Tensor) -> Tensor:
            return tensor.narrow(0, start, rows)

        return self._each(view)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "LayerMemory":
        return LayerMemory(
            change(self.positions),
            change(self.residual),
            change(self.attention),
            change(self.q),
            change(self.k),
            change(self.v),
            tuple((change(cos), change(sin)) for cos, sin in self.rotations),
        )

    def entered(self, *, attended: bool) -> LayerState:
        """A state that POST begins with, or PRE, in this memory."""
        state = LayerState(self.positions, self.residual, rotations=self.rotations)
        return replace(state, attention=self.attention) if attended else state

    def takes(self, states: Sequence[LayerState]) -> bool:
        """Whether states can be brought: the first PRE, which rotates positions, has been."""
        return all(len(state.rotations) == len(self.rotations) for state in states)

    def keep(self, state: LayerState) -> None:
        """Bring here what PRE left in memory of its own."""
        for target, made in zip((self.q, self.k, self.v), qkv_of(state), strict=True):
            target.copy_(made)

    def bring(self, states: Sequence[LayerState]) -> "list[LayerMemory]":
        """Bring states that POST or PRE begins with, one behind the other, but for what is there
        already.

        Returns: each one's part.
        """
        parts, start = [], 0
        for state in states:
            parts.append(self.part(start, state.num_tokens))
            start += state.num_tokens
        # what lies at another place here is taken out first: places may overlap
        safe = [
            state.owned() if self._is_elsewhere(state, part) else state
            for state, part in zip(states, parts, strict=True)
        ]
        for state, part in zip(safe, parts, strict=True):
            for target, source in _pairs(part, state):
                if target.data_ptr() != source.data_ptr():
                    target.copy_(source)
        return parts

    def _is_elsewhere(self, state: LayerState, part: "LayerMemory") -> bool:
        held = self.residual.untyped_storage().data_ptr()
        is_here = state.residual.untyped_storage().data_ptr() == held
        return is_here and state.residual.data_ptr() != part.residual.data_ptr()

    def state_of(self, positions: Tensor, *, computed: bool) -> LayerState:
        """What a graph left here.

        Args:
            positions: of the tokens, which graphs do not read.
            computed: q, k and v of the next layer, too.
        """
        state = LayerState(positions, self.residual, rotations=self.rotations)
        return replace(state, q=self.q, k=self.k, v=self.v) if computed else state


def _pairs(part: LayerMemory, state: LayerState) -> Iterator[tuple[Tensor, Tensor]]:
    yield part.residual, state.residual
    if state.attention is not None:
        yield part.attention, state.attention
    for (cos, sin), (own_cos, own_sin) in zip(part.rotations, state.rotations, strict=True):
        yield cos, own_cos
        yield sin, own_sin


def _zeros(tensor: Tensor) -> Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
