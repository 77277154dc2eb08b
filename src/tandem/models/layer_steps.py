"""The maths of a layer's operations, fused where a slice permits it.

A *step* executes one or several adjacent operations on a `LayerState`: it reads the buffers those
operations read, writes what they write, and drops what nothing after them needs. Thus a state is
complete at every cut.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from tandem.models.divided_layer import COLUMNS
from tandem.models.expert_steps import ExpertSteps
from tandem.models.layer_state import LayerState, Step, taken
from tandem.models.linear import add_linear, linear
from tandem.models.rotary import Rotary, Rotation, rotate, rotations_of
from tandem.models.triton_unit import triton_unit
from tandem.models.weight_layout import Affine, Modules
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation, Stage

_FIRST_IN, _FIRST_IN_GATED = f"{COLUMNS}fc0", f"{COLUMNS}gate_up"


class LayerSteps:
    """Builds the steps of any slice of a layer without attention operations.

    Args:
        spec: the model's facts.
        ropes: the model's rotary embeddings, on its device.
        rope_index: which of them the layer has.

    Attributes:
        experts: the maths of a mixture, None for models without.
    """

    def __init__(self, spec: ModelSpec, ropes: Sequence[Rotary], rope_index: int) -> None:
        self._spec = spec
        self._ropes = ropes
        self._rope_index = rope_index
        self._singles: Mapping[str, Step] = {
            "LN.0": self._attention_norm,
            "Q": self._q,
            "K": self._k,
            "V": self._v,
            "QNorm": self._q_norm,
            "KNorm": self._k_norm,
            "Rope": self._rope,
            "Output": self._output,
            "LN.Output": self._post_attention_norm,
            "LN.1": self._mlp_norm,
            "FC.gate": self._gate,
            "FC.up": self._up,
            "FC.act": self._gated_activation if spec.gated else self._activation_only,
            "FC.down": self._down,
            "Experts.act": self._gated_activation,
            "FC.0": self._fc0,
            "FC.1": self._fc1,
            "LN.FC": self._post_mlp_norm,
        }
        self._fused: Mapping[tuple[str, ...], Step] = {
            ("Q", "K", "V", "Rope"): self._qkv_rotated,
            ("Q", "K", "V"): self._qkv,
            ("FC.gate", "FC.up"): self._gate_up,
        }
        self.experts: ExpertSteps | None = None
        if spec.experts is not None:
            self.experts = ExpertSteps(spec.experts, partial(gated, spec.activation))
            self._singles = {**self._singles, **self.experts.singles}
            self._fused = {**self._fused, **self.experts.fused}

    def of(self, operations: tuple[Operation, ...], stage: Stage) -> tuple[Step, ...]:
        """Steps that execute `stage` of a layer with these `operations`.

        Raises:
            ValueError: the stage contains attention or exceeds the layer.
        """
        names = tuple(op.name for op in stage.of(operations))
        if stage.end > len(operations) or any(op.is_attention for op in stage.of(operations)):
            raise ValueError(f"{stage} is not a slice of operations outside attention")
        steps: list[Step] = []
        index = 0
        while index < len(names):
            fused = self._fused_at(names[index:])
            steps.append(self._fused[fused] if fused else self._singles[names[index]])
            index += len(fused) or 1
        return tuple(steps)

    def keys_values(self, weights: Modules, state: LayerState) -> tuple[Tensor, Tensor]:
        """Of the residual, which stays: keys, normed and rotated, and values alone."""
        self._attention_norm(weights, state)
        key, value = (self._heads(weights[name], state) for name in ("k", "v"))
        state.x = None
        if self._spec.qk_norm:
            key = rms_norm(self._spec, weights["k_norm"].weight, key)
        return rotate(key, self._rotation(state)) if self._ropes else key, value

    def _fused_at(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return next((group for group in self._fused if names[: len(group)] == group), ())

    def _attention_norm(self, weights: Modules, state: LayerState) -> None:
        state.x = norm(self._spec, weights["attention_norm"], state.residual)

    def _mlp_norm(self, weights: Modules, state: LayerState) -> None:
        state.x = norm(self._spec, weights["mlp_norm"], state.residual)

    def _post_attention_norm(self, weights: Modules, state: LayerState) -> None:
        self._add_normed(weights["post_attention_norm"], state)

    def _post_mlp_norm(self, weights: Modules, state: LayerState) -> None:
        self._add_normed(weights["post_mlp_norm"], state)

    def _add_normed(self, affine: Affine, state: LayerState) -> None:
        state.residual.add_(norm(self._spec, affine, taken(state.x, "x")))
        state.x = None

    def _add_branch(self, affine: Affine, x: Tensor, state: LayerState) -> None:
        """Add a product to the residual, or leave it to the norm that comes next."""
        if self._spec.post_norms:
            state.x = linear(affine, x)
        else:
            add_linear(affine, x, state.residual)

    def mlp_input(self, weights: Modules, state: LayerState) -> Tensor:
        """The residual normed as the MLP has it; it stays."""
        return norm(self._spec, weights["mlp_norm"], state.residual)

    def columns(self, weights: Modules, x: Tensor, *, first: bool = True) -> Tensor:
        """What the first columns of a divided MLP make of its input, or the others, with what is
        added once: [T, hidden].
        """
        before, spec = COLUMNS if first else "", self._spec
        if spec.gated:
            gate, up = linear(weights[f"{before}gate_up"], x).chunk(2, dim=-1)
            return linear(weights[f"{before}down"], gated(spec.activation, gate, up))
        mlp = activate(spec.activation, linear(weights[f"{before}fc0"], x))
        return linear(weights[f"{before}fc1"], mlp)

    def add_branch(self, weights: Modules, branch: Tensor, state: LayerState) -> None:
        """Add an MLP's result to the residual, normed before if the architecture does so."""
        if self._spec.post_norms:
            branch = norm(self._spec, weights["post_mlp_norm"], branch)
        state.residual.add_(branch)

    def _begin_divided(self, weights: Modules, state: LayerState) -> None:
        """Before the other columns of a divided MLP, the first ones."""
        if _FIRST_IN in weights or _FIRST_IN_GATED in weights:
            state.columns = self.columns(weights, taken(state.x, "x"))

    def _end_divided(self, state: LayerState) -> None:
        if state.columns is not None:
            branch = taken(state.x, "x") if self._spec.post_norms else state.residual
            branch.add_(state.columns)
            state.columns = None

    def _qkv(self, weights: Modules, state: LayerState) -> None:
        spec, whole = self._spec, linear(weights["qkv"], taken(state.x, "x"))
        heads = whole.view(-1, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        state.q, state.k, state.v = heads.split_with_sizes(
            [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads], dim=1
        )
        state.x = None

    def _qkv_rotated(self, weights: Modules, state: LayerState) -> None:
        spec, whole = self._spec, linear(weights["qkv"], taken(state.x, "x"))
        heads = whole.view(-1, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        turning = spec.num_heads + spec.num_kv_heads
        both, state.v = heads.split_with_sizes([turning, spec.num_kv_heads], dim=1)
        state.q, state.k = rotate(both, self._rotation(state)).split_with_sizes(
            [spec.num_heads, spec.num_kv_heads], dim=1
        )
        state.x = None

    def _q(self, weights: Modules, state: LayerState) -> None:
        state.q = self._heads(weights["q"], state)

    def _k(self, weights: Modules, state: LayerState) -> None:
        state.k = self._heads(weights["k"], state)

    def _v(self, weights: Modules, state: LayerState) -> None:
        state.v = self._heads(weights["v"], state)
        state.x = None

    def _heads(self, affine: Affine, state: LayerState) -> Tensor:
        return linear(affine, taken(state.x, "x")).unflatten(-1, (-1, self._spec.head_dim))

    def _q_norm(self, weights: Modules, state: LayerState) -> None:
        state.q = rms_norm(self._spec, weights["q_norm"].weight, taken(state.q, "q"))

    def _k_norm(self, weights: Modules, state: LayerState) -> None:
        state.k = rms_norm(self._spec, weights["k_norm"].weight, taken(state.k, "k"))

    def _rope(self, weights: Modules, state: LayerState) -> None:
        del weights
        rotation = self._rotation(state)
        state.q = rotate(taken(state.q, "q"), rotation)
        state.k = rotate(taken(state.k, "k"), rotation)

    def _rotation(self, state: LayerState) -> Rotation:
        if not state.rotations:
            state.rotations = rotations_of(self._ropes, state.positions)
        return state.rotations[self._rope_index]

    def _output(self, weights: Modules, state: LayerState) -> None:
        attention = taken(state.attention, "attention").flatten(1)
        self._add_branch(weights["output"], attention, state)
        state.q = state.k = state.v = state.attention = None

    def _gate_up(self, weights: Modules, state: LayerState) -> None:
        self._begin_divided(weights, state)
        state.gate, state.up = linear(weights["gate_up"], taken(state.x, "x")).chunk(2, dim=-1)
        state.x = None

    def _gate(self, weights: Modules, state: LayerState) -> None:
        self._begin_divided(weights, state)
        state.gate = linear(weights["gate"], taken(state.x, "x"))

    def _up(self, weights: Modules, state: LayerState) -> None:
        state.up = linear(weights["up"], taken(state.x, "x"))
        state.x = None

    def _gated_activation(self, weights: Modules, state: LayerState) -> None:
        del weights
        gate, up = taken(state.gate, "gate"), taken(state.up, "up")
        state.mlp = gated(self._spec.activation, gate, up)
        state.gate = state.up = None

    def _activation_only(self, weights: Modules, state: LayerState) -> None:
        del weights
        state.mlp = activate(self._spec.activation, taken(state.mlp, "mlp"))

    def _fc0(self, weights: Modules, state: LayerState) -> None:
        self._begin_divided(weights, state)
        state.mlp = linear(weights["fc0"], taken(state.x, "x"))
        state.x = None

    def _down(self, weights: Modules, state: LayerState) -> None:
        self._add_branch(weights["down"], taken(state.mlp, "mlp"), state)
        state.mlp = None
        self._end_divided(state)

    def _fc1(self, weights: Modules, state: LayerState) -> None:
        self._add_branch(weights["fc1"], taken(state.mlp, "mlp"), state)
        state.mlp = None
        self._end_divided(state)


def norm(spec: ModelSpec, affine: Affine, x: Tensor) -> Tensor:
    """The model's norm over the last dimension of `x` [T, hidden]."""
    if spec.norm == "rms":
        return rms_norm(spec, affine.weight, x)
    affine = affine.to(x.dtype)
    return F.layer_norm(x, (x.shape[-1],), affine.weight, affine.bias, spec.norm_eps)


def rms_norm(spec: ModelSpec, weight: Tensor, x: Tensor) -> Tensor:
    """Root-mean-square norm over the last dimension, by the stored `weight`."""
    size = (x.shape[-1],)
    if not spec.norm_offset:
        return F.rms_norm(x, size, weight.to(x.dtype), spec.norm_eps)
    # In float32 to the end: 1 + weight in 16 bits would round most of a small weight away.
    shifted = weight.float() + spec.norm_offset
    return F.rms_norm(x.float(), size, shifted, spec.norm_eps).to(x.dtype)


def gated(name: str, gate: Tensor, up: Tensor) -> Tensor:
    """The activation of `gate`, times `up`: new memory."""
    if gate.dim() == 2 and triton_unit(gate) is not None and gate.shape[0]:
        from tandem.kernels import triton_row_operations

        if name in triton_row_operations.GATED_ACTIVATIONS:
            return triton_row_operations.gated(name, gate, up)
    return activate(name, gate).mul_(up)


def activate(name: str, x: Tensor) -> Tensor:
    """The activation of that name, of every element: new memory."""
    if name == "silu":
        return F.silu(x)
    if name == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")
