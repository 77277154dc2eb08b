"""A model's stages and head on the compiled kernels: few calls, activations in float32.

Import this module only if `native.available()`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import SplitBatch
from tandem.kernels.native_linear import linear
from tandem.kernels.native_pool import NativePool
from tandem.models.direct_reader import DirectReader
from tandem.models.divided_layer import COLUMNS
from tandem.models.expert_hits import ExpertHits
from tandem.models.in_slots import Moving, in_slots
from tandem.models.layer_state import LayerState, taken
from tandem.models.native_weights import ACTIVATIONS, native_linear, native_norm
from tandem.models.rotary import Rotary, Rotation, rotations_of
from tandem.models.weight_layout import Modules
from tandem.models.weights import Weights
from tandem.spec.model import ModelSpec

if TYPE_CHECKING:
    from tandem.models.native_columns import NativeColumns


class NativeLayers:
    """The default stages of some layers; weights stay as they lie.

    Args:
        layers: matrices in host memory, of any element type, or quantized.
        pool: whose threads do the work.
        moving: of layers that are now in one slot and now in another; these count.
        mlps: likewise, of layers of which nothing but `mlp` is executed; router and some experts
            of a mixture may be missing if another device has them.
        columns: likewise, of layers of whose divided MLPs the first columns are computed alone, and
            attention's maps as if they were of `layers`, if they are there.
        int8_activations: round what goes into maps of 8 bits to 8 bits too.

    Attributes:
        expert_hits: how often tokens went to each expert.
    """

    def __init__(
        self,
        spec: ModelSpec,
        layers: dict[int, Modules],
        pool: NativePool,
        mlps: Mapping[int, Modules] | None = None,
        moving: Moving[Modules] | None = None,
        *,
        columns: Mapping[int, Modules] | None = None,
        int8_activations: bool = False,
    ) -> None:
        self.pool = pool
        self.dtype: torch.dtype = torch.float32
        self.expert_hits = ExpertHits(spec, torch.device("cpu"))
        self._spec = spec
        self._ropes = [Rotary.of(rope, spec.head_dim, torch.device("cpu")) for rope in spec.ropes]

        def made(layer: int, modules: Modules) -> _native.Layer:
            return _layer(spec, modules, self._experts(layer, modules), int8_activations)

        whole = {n: _around_columns(m) for n, m in (columns or {}).items() if "qkv" in m}
        self._at_rest = {layer: made(layer, modules) for layer, modules in (layers | whole).items()}
        self._layers = in_slots(self._at_rest, moving and moving.each(made))
        self._mlps = {
            layer: _mlp(spec, modules, self._experts(layer, modules), int8_activations)
            for layer, modules in (mlps or {}).items()
        }
        self._columns = _columns(spec, columns, pool) if columns else {}

    def _experts(self, layer: int, modules: Modules) -> _native.Experts | None:
        experts = self._spec.routed_experts(layer)
        if experts is None:
            return None
        each = range(experts.count)
        return _native.Experts(
            router=_handle(modules, "router"),
            ups=[_handle(modules, f"experts.{i}.gate_up") for i in each],
            downs=[_handle(modules, f"experts.{i}.down") for i in each],
            per_token=experts.per_token,
            renormalized=experts.renormalized,
            hits=self.expert_hits.counts[layer],
        )

    def pre(self, layer: int, state: LayerState) -> None:
        """From the residual to q, k and v, normed and rotated: views of one product."""
        self._check_there(layer)
        spec, tokens = self._spec, state.num_tokens
        product = torch.empty(tokens, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        cos, sin = self.rotation(layer, state)
        self._layers[layer].pre(
            self.pool.handle, self.pool.isa, state.residual, cos, sin, product.flatten(1)
        )
        state.q, state.k, state.v = product.split_with_sizes(
            [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads], dim=1
        )

    def post(self, layer: int, state: LayerState) -> None:
        """From attention to the end of the layer; the residual is updated in place."""
        self._check_there(layer)
        attention = taken(state.attention, "attention").flatten(1)
        self._layers[layer].post(self.pool.handle, self.pool.isa, attention, state.residual)
        state.q = state.k = state.v = state.attention = None

    def mlp(self, layer: int, state: LayerState) -> None:
        """From the norm before the MLP to the end of the layer; the residual is updated in place.

        Only of layers given as `mlps`. The state may hold a choice of experts that was made
        elsewhere.
        """
        self._mlps[layer].run(
            self.pool.handle, self.pool.isa, state.residual, state.experts, state.expert_weights
        )
        state.experts = state.expert_weights = None

    def columns(self, layer: int, state: LayerState) -> None:
        """Of a divided MLP, what its first columns add to the branch, in the residual's place."""
        state.residual = self._columns[layer].sum(state.residual)

    def output(self, layer: int, state: LayerState) -> None:
        """From attention to before the norm of the MLP; the residual is updated in place."""
        self._columns[layer].output(taken(state.attention, "attention").flatten(1), state.residual)
        state.q = state.k = state.v = state.attention = None

    def add_branch(self, layer: int, branch: Tensor, state: LayerState) -> None:
        """End a layer with its MLP's result [T, hidden], before the norm behind it."""
        self._columns[layer].add_branch(branch, state.residual)

    def _check_there(self, layer: int) -> None:
        """For those that read layers only when they run all."""

    def rotation(self, layer: int, state: LayerState) -> tuple[Tensor | None, Tensor | None]:
        """Cosines and signed sines [T, head_dim] of the state's positions, made once."""
        rotations = self._rotations(state)
        if not rotations:
            return None, None
        cos, sin = rotations[self._spec.rope_index(layer)]
        return cos.squeeze(1), sin.squeeze(1)

    def _rotations(self, state: LayerState) -> tuple[Rotation, ...]:
        if not state.rotations:
            state.rotations = rotations_of(self._ropes, state.positions)
        return state.rotations


class NativeStages(NativeLayers):
    """The default stages of all layers, and the head."""

    def __init__(
        self,
        spec: ModelSpec,
        weights: Weights,
        pool: NativePool,
        *,
        int8_activations: bool = False,
    ) -> None:
        layers, moving = dict(enumerate(weights.layers)), weights.moving
        super().__init__(spec, layers, pool, moving=moving, int8_activations=int8_activations)
        disk = weights.computed_from_disk
        self._read = () if disk is None else disk.placement.layers
        reader = None if disk is None else disk.reader
        assert not isinstance(reader, DirectReader), "what the CPU computes is read into its memory"
        self._windows = sorted(set(spec.layer_windows))
        self._stack = _native.LayerStack(
            [self._at_rest[layer] for layer in range(spec.num_layers)],
            [self._windows.index(window) for window in spec.layer_windows],
            [spec.rope_index(layer) for layer in range(spec.num_layers)],
            reader,
            list(self._read),
        )
        self._final_norm = native_norm(spec, weights.outer["final_norm"])
        self._head = native_linear(weights.outer["head"])

    def _check_there(self, layer: int) -> None:
        if layer in self._read:
            raise RuntimeError(f"layer {layer} is on disk: only all layers at once can be run")

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return len(self._layers)

    @property
    def scratch_token_bytes(self) -> int:
        """What `run_layers` takes per token while it runs."""
        return self._stack.scratch_token_bytes

    @property
    def scratch_bytes(self) -> int:
        """What it takes beside that, whatever the number of tokens."""
        return self._stack.scratch_bytes

    def run_layers(
        self, state: LayerState, pages: Tensor, slots: Tensor, plans: Mapping[int, SplitBatch]
    ) -> None:
        """Of every layer `pre`, append, attention over one tier's pages, `post`; all in one call.

        Args:
            pages: of all layers, `[layers, ...]` before what the plans were made for.
            slots: int64 [T]; where the tokens' keys and values go.
            plans: of all T tokens' attention, for each window that layers have.

        Raises:
            ValueError: slots, blocks or tokens that do not exist; nothing was written.
        """
        self._stack.run(
            self.pool.handle,
            self.pool.isa,
            state.residual,
            [(cos.squeeze(1), sin.squeeze(1)) for cos, sin in self._rotations(state)],
            pages,
            slots,
            [(plans[w].decode_plan, plans[w].prefill_plan) for w in self._windows],
            self._spec.attention_scale,
            self._spec.attention_soft_cap,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and output head of `hidden` [n, hidden]: [n, vocab]."""
        normed = torch.empty_like(hidden)
        _native.normalize(self.pool.handle, self._final_norm, hidden, normed)
        return linear(self.pool, self._head, normed)


def _layer(
    spec: ModelSpec, modules: Modules, experts: _native.Experts | None, int8_activations: bool
) -> _native.Layer:
    gate_up, down = ("gate_up", "down") if spec.gated else ("fc0", "fc1")
    post_attention = native_norm(spec, modules["post_attention_norm"]) if spec.post_norms else None
    post_mlp = native_norm(spec, modules["post_mlp_norm"]) if spec.post_norms else None
    return _native.Layer(
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        attention_norm=native_norm(spec, modules["attention_norm"]),
        qkv=native_linear(modules["qkv"]).handle,
        query_norm=native_norm(spec, modules["q_norm"]) if spec.qk_norm else None,
        key_norm=native_norm(spec, modules["k_norm"]) if spec.qk_norm else None,
        output=native_linear(modules["output"]).handle,
        post_attention_norm=post_attention,
        mlp_norm=native_norm(spec, modules["mlp_norm"]),
        up=None if experts else native_linear(modules[gate_up]).handle,
        down=None if experts else native_linear(modules[down]).handle,
        post_mlp_norm=post_mlp,
        activation=ACTIVATIONS[spec.activation],
        gated=spec.gated,
        int8_activations=int8_activations,
        experts=experts,
    )


def _mlp(
    spec: ModelSpec, modules: Modules, experts: _native.Experts | None, int8_activations: bool
) -> _native.Mlp:
    gate_up, down = ("gate_up", "down") if spec.gated else ("fc0", "fc1")
    return _native.Mlp(
        norm=native_norm(spec, modules["mlp_norm"]),
        up=None if experts else native_linear(modules[gate_up]).handle,
        down=None if experts else native_linear(modules[down]).handle,
        post_norm=native_norm(spec, modules["post_mlp_norm"]) if spec.post_norms else None,
        activation=ACTIVATIONS[spec.activation],
        gated=spec.gated,
        int8_activations=int8_activations,
        experts=experts,
    )


def _handle(modules: Modules, name: str) -> _native.LinearWeight | None:
    return native_linear(modules[name]).handle if name in modules else None


def _around_columns(modules: Modules) -> Modules:
    """A divided layer as one whose MLP is the CPU's columns, for what comes before that."""
    own = {n.removeprefix(COLUMNS): a for n, a in modules.items() if n.startswith(COLUMNS)}
    return modules | own


def _columns(
    spec: ModelSpec, columns: Mapping[int, Modules], pool: NativePool
) -> "dict[int, NativeColumns]":
    from tandem.models.native_columns import NativeColumns

    return {layer: NativeColumns(spec, modules, pool) for layer, modules in columns.items()}
