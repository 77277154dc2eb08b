"""What a layer holds for a set of tokens between two operations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import chain

import torch
from torch import Tensor

from tandem.models.rotary import Rotation
from tandem.models.weight_layout import Modules


@dataclass(slots=True)
class LayerState:
    """Activations of T tokens inside a layer; those that no later operation needs are None.

    `q`, `k`, `v` may be views of one buffer: their last dimension is contiguous, tokens may be
    strided. `residual` is updated in place. All but `positions` and a mixture's choice of experts
    are in the model's dtype.

    Attributes:
        positions: [T] int; absolute positions.
        residual: [T, hidden].
        x: [T, hidden]; output of a norm, or of a branch that is yet to be normed and added.
        q: [T, heads, head_dim]; k, v: [T, kv_heads, head_dim].
        attention: [T, heads, head_dim]; set by whoever executes the attention stage, here or
            through `finish_attention`.
        experts: [T, k] int64; those that each token goes to. expert_weights: [T, k] float32.
        gate, up, mlp: [T, intermediate]; in a mixture of experts [T, k, intermediate]; of a divided
            MLP, of its other columns. columns: [T, hidden]; what its first ones add.
        rotations: cos and signed sin of the positions by each of the model's rotary embeddings,
            derived from them and kept between layers.
    """

    positions: Tensor
    residual: Tensor
    x: Tensor | None = None
    q: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None
    attention: Tensor | None = None
    experts: Tensor | None = None
    expert_weights: Tensor | None = None
    gate: Tensor | None = None
    up: Tensor | None = None
    mlp: Tensor | None = None
    columns: Tensor | None = None
    rotations: tuple[Rotation, ...] = ()

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.positions.shape[0]

    @property
    def size_bytes(self) -> int:
        """Bytes that these tokens keep: positions, live activations and the rotation.

        A view with strided tokens keeps its whole buffer, which other views here may share.
        """
        size = self.positions.nbytes
        shared: set[int] = set()
        for tensor in chain(self.buffers().values(), *self.rotations):
            stride = tensor.stride(0)
            if tensor.nbytes == stride * tensor.shape[0] * tensor.element_size():
                size += tensor.nbytes
            elif stride not in shared:
                shared.add(stride)
                size += stride * tensor.shape[0] * tensor.element_size()
        return size

    def finish_attention(self, attention: Tensor) -> None:
        """Move past attention: keep its result [T, heads, head_dim], let go of q, k and v."""
        self.attention = attention
        self.q = self.k = self.v = None

    def buffers(self) -> dict[str, Tensor]:
        """The live activations by name: what suspending here has to keep, besides `positions`."""
        found = {name: getattr(self, name) for name in _BUFFERS}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @staticmethod
    def cat(states: Sequence["LayerState"]) -> "LayerState":
        """One state over the tokens of all, in order; all must be suspended at the same cut.

        A single state is returned as it is; otherwise the result owns its memory.

        Raises:
            ValueError: no states, or their live buffers differ.
        """
        if len(states) == 1:
            return states[0]
        if len({frozenset(state.buffers()) for state in states}) != 1:
            raise ValueError("only states that are suspended at the same cut can be joined")
        joined = LayerState(
            positions=torch.cat([state.positions for state in states]),
            residual=torch.cat([state.residual for state in states]),
        )
        for name in states[0].buffers():
            if name != "residual":
                setattr(joined, name, torch.cat([getattr(state, name) for state in states]))
        if all(state.rotations for state in states):
            joined.rotations = tuple(
                (torch.cat([cos for cos, _ in same]), torch.cat([sin for _, sin in same]))
                for same in zip(*(state.rotations for state in states), strict=True)
            )
        return joined

    def split(self, sizes: Sequence[int]) -> "tuple[LayerState, ...]":
        """Consecutive parts of `sizes` tokens each, as views of this state's memory.

        Raises:
            ValueError: the sizes do not add up to the number of tokens.
        """
        if sum(sizes) != self.num_tokens:
            raise ValueError(f"sizes {list(sizes)} do not add up to {self.num_tokens} tokens")
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return tuple(self._narrow(start, size) for start, size in zip(starts, sizes, strict=True))

    def owned(self) -> "LayerState":
        """A copy in memory of its own, which keeps no larger buffer alive."""
        copy = self._narrow(0, self.num_tokens)
        copy.positions, copy.residual = self.positions.clone(), self.residual.clone()
        for name, tensor in self.buffers().items():
            setattr(copy, name, tensor.clone())
        copy.rotations = tuple((cos.clone(), sin.clone()) for cos, sin in self.rotations)
        return copy

    def _narrow(self, start: int, size: int) -> "LayerState":
        part = LayerState(
            positions=self.positions.narrow(0, start, size),
            residual=self.residual.narrow(0, start, size),
        )
        for name, tensor in self.buffers().items():
            if name != "residual":
                setattr(part, name, tensor.narrow(0, start, size))
        part.rotations = tuple(
            (cos.narrow(0, start, size), sin.narrow(0, start, size)) for cos, sin in self.rotations
        )
        return part


# Executes one or several adjacent operations.
Step = Callable[[Modules, LayerState], None]
_BUFFERS = tuple(
    field.name for field in fields(LayerState) if field.name not in ("positions", "rotations")
)


def taken(tensor: Tensor | None, name: str) -> Tensor:
    """The buffer an operation needs.

    Raises:
        ValueError: the state does not hold it; it is not at the cut the caller takes it to be.
    """
    if tensor is None:
        raise ValueError(f"the layer state holds no '{name}'; it is suspended at another cut")
    return tensor
