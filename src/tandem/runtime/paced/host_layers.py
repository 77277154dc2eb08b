"""Layers and MLPs on the CPU in the paced emulator: real maths on weights of random bytes."""

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from tandem.models.divided_layer import COLUMNS
from tandem.models.host_layers import HostLayers
from tandem.models.layer_state import LayerState
from tandem.models.torch_layers import TorchLayers
from tandem.models.weight_layout import LayerLayout, LayerShapes, Modules
from tandem.models.weights import torch_dtype
from tandem.plan.program import OpKind, Part, ProgramOp
from tandem.runtime.lane_states import merge_parts, qkv_of
from tandem.runtime.paced.choices import PacedChoices
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_weights, mlp_weights

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool

_CPU = torch.device("cpu")
_CACHE_MULTIPLE = 8
_TILE = 1 << 20
_RESIDUALS = 256

_OF_CUT = (Part.OUTPUT, Part.COLUMNS, Part.RESIDUAL)


class PacedHostLayers:
    """Executes stages and merges of the CPU queue; results are thrown away, their time is real.

    Weights of a few layers serve all, in turn: so many that no cache keeps them until they are
    read again.

    Args:
        count: layers that may ever be computed at once; no more sets of weights are made.
        pool: of the compiled kernels; None: torch computes.
        mlps_only: whole layers are never computed, and have no weights.
        columns: of MLPs, those that are computed, if they are not computed whole: what these take
            is what an MLP of that size takes. attention_maps: with these, those of attention.
        choices: of experts where only MLPs are computed; None: routers choose.
    """

    def __init__(
        self,
        spec: ModelSpec,
        dtype: DType,
        count: int,
        cache_bytes: int,
        pool: "NativePool | None",
        seed: int,
        *,
        mlps_only: bool = False,
        columns: int = 0,
        attention_maps: bool = False,
        choices: PacedChoices | None = None,
    ) -> None:
        self._choices = choices
        if columns:
            spec = replace(spec, intermediate_size=columns)
        self._spec, self._dtype, self._pool, self._seed = spec, dtype, pool, seed
        self._mlps_only, self._cut = mlps_only, attention_maps
        weights = (mlp_weights if mlps_only else layer_weights)(spec, spec.num_layers - 1)
        self._layout = LayerLayout(LayerShapes(weights, torch_dtype(dtype), {}))
        wanted = math.ceil(_CACHE_MULTIPLE * cache_bytes / self._layout.size_bytes)
        self._sets = min(max(1, wanted), count)
        self._visits = 0
        self._states: dict[int, LayerState] = {}  # by lane: those of a stage have one
        self._residuals = torch.empty(0)

    @cached_property
    def _modules(self) -> dict[int, Modules]:
        """Made when first used: gigabytes, for nothing where work is only scripted."""
        generator = torch.Generator().manual_seed(self._seed)
        return {
            number: _random_layer(self._layout, self._dtype, generator)
            for number in range(self._sets)
        }

    @cached_property
    def _layers(self) -> HostLayers:
        if self._cut:
            divided = {n: _divided(modules) for n, modules in self._modules.items()}
            return _stages(self._spec, {}, self._pool, self._dtype, columns=divided)
        sets = self._modules
        return _stages(self._spec, {} if self._mlps_only else sets, self._pool, self._dtype, sets)

    @cached_property
    def _split(self) -> HostLayers:
        """Mixtures of which the accelerator has a part, on the same memory."""
        assert self._choices is not None
        left = {n: self._choices.without_last(modules) for n, modules in self._modules.items()}
        return _stages(self._spec, {}, self._pool, self._dtype, left)

    @torch.inference_mode()
    def run(self, op: ProgramOp, tokens: int, tiers: int) -> None:
        """A stage or a merge on `tokens` tokens, whose keys lie in `tiers` tiers."""
        layer = self._visits % self._sets
        if self._cut and op.part in _OF_CUT:
            self._of_cut(op, layer)
        elif op.part in (Part.MLP, Part.COLUMNS):
            self._mlp(op.layer, layer, tokens)
            self._visits += 1
        elif op.part is Part.PRE:
            positions = torch.zeros(tokens, dtype=torch.int64)
            state = LayerState(positions, self._residual(tokens))
            self._states |= dict.fromkeys(op.lanes, state)
            self._layers.pre(layer, state)
        elif op.kind is OpKind.MERGE:
            self._merge(self._state_of(op), tiers)
        else:
            self._layers.post(layer, self._state_of(op))
            self._visits += 1
            for lane in op.lanes:
                del self._states[lane]

    def _state_of(self, op: ProgramOp) -> LayerState:
        """Of several batches each is in a layer of its own, or at another stage of the same.

        Raises:
            ValueError: no stage before attention has been run for these lanes.
        """
        state = self._states.get(op.lanes[0])
        if state is None:
            raise ValueError(f"lane {op.lanes[0]} has not begun layer {op.layer} on the CPU")
        return state

    def _of_cut(self, op: ProgramOp, layer: int) -> None:
        """What follows attention in a layer whose MLP is divided; the state is there until the
        batch begins another such layer.
        """
        state = self._state_of(op)
        if op.part is Part.OUTPUT:
            self._layers.output(layer, state)
        elif op.part is Part.COLUMNS:
            self._layers.columns(layer, LayerState(state.positions, state.residual))
            self._visits += 1
        else:
            self._layers.add_branch(layer, torch.zeros_like(state.residual), state)

    def _mlp(self, layer: int, number: int, tokens: int) -> None:
        positions = torch.zeros(tokens, dtype=torch.int64)
        state, choices = LayerState(positions, self._residual(tokens)), self._choices
        if choices is not None and self._spec.routed_experts(layer) is not None:
            choices.route(layer, state)
        split = choices is not None and choices.is_split(layer)
        (self._split if split else self._layers).mlp(number, state)

    def _residual(self, tokens: int) -> torch.Tensor:
        """Another one for each token and layer, since routers send like tokens to the same experts,
        whose weights would then be in caches.
        """
        if len(self._residuals) < tokens:
            generator = torch.Generator().manual_seed(self._seed)
            shape = (max(tokens, _RESIDUALS), self._spec.hidden_size)
            self._residuals = torch.randn(shape, generator=generator).to(self._layers.dtype)
        start = self._visits * tokens
        return self._residuals[torch.arange(start, start + tokens) % len(self._residuals)]

    def _merge(self, state: LayerState, tiers: int) -> None:
        """Of all lanes that began together, with the first of them."""
        if state.attention is not None:
            return
        query = qkv_of(state)[0]
        out, lse = torch.ones(query.shape), torch.zeros(query.shape[:2])
        merged = merge_parts(query, [(None, (out, lse))] * max(1, tiers))
        state.finish_attention(merged.to(query.dtype))


def _stages(
    spec: ModelSpec,
    sets: dict[int, Modules],
    pool: "NativePool | None",
    dtype: DType,
    mlps: dict[int, Modules] | None = None,
    columns: dict[int, Modules] | None = None,
) -> HostLayers:
    if pool is None:
        layers = sets | (mlps or {}) | (columns or {})
        return TorchLayers(spec, layers, _CPU, torch_dtype(dtype))
    from tandem.models.native_stages import NativeLayers

    return NativeLayers(spec, sets, pool, mlps, columns=columns)


def _divided(modules: Modules) -> Modules:
    """A layer as one of whose MLP all is the CPU's columns."""
    names = ("gate_up", "down", "fc0", "fc1")
    return modules | {COLUMNS + n: modules[n] for n in names if n in modules}


def _random_layer(layout: LayerLayout, dtype: DType, generator: torch.Generator) -> Modules:
    """Small values around 0, so that nothing overflows."""
    memory, vectors = layout.allocate(_CPU), layout.allocate_vectors(_CPU)
    values = memory.view(torch_dtype(dtype))
    tile = torch.empty(min(_TILE, len(values)), dtype=values.dtype)
    tile.uniform_(-0.01, 0.01, generator=generator)
    for part in values.split(len(tile)):
        part.copy_(tile[: len(part)])
    for vector in vectors:
        vector.fill_(1.0)
    return layout.modules(memory, vectors)
