"""A model's stages and head on the compiled kernels: few calls, activations in float32.

Import this module only if `native.available()`.
"""

import torch
from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import SplitBatch
from tandem.kernels.native_linear import Activation, NativeLinear, linear
from tandem.kernels.native_pool import NativePool
from tandem.models.layer_state import LayerState, taken
from tandem.models.rotary import inverse_frequencies, rotation_of
from tandem.models.weight_layout import Affine, Modules
from tandem.models.weights import Weights
from tandem.spec.model import ModelSpec

_ACTIVATIONS = {
    "silu": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
}


class NativeStages:
    """The default stages of every layer, and the head; weights stay as they lie.

    Args:
        weights: in host memory, of any element type.
        pool: whose threads do the work.
    """

    def __init__(self, spec: ModelSpec, weights: Weights, pool: NativePool) -> None:
        self.pool = pool
        self._spec = spec
        self._frequencies = None
        if spec.rope is not None:
            self._frequencies = inverse_frequencies(spec.rope, spec.head_dim)
        self._layers = [_layer(spec, modules) for modules in weights.layers]
        self._stack = _native.LayerStack(self._layers)
        self._final_norm = _norm(spec, weights.outer["final_norm"])
        self._head = _linear(weights.outer["head"])

    def pre(self, layer: int, state: LayerState) -> None:
        """From the residual to q, k and v, normed and rotated: views of one product."""
        spec, tokens = self._spec, state.num_tokens
        product = torch.empty(tokens, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        cos, sin = self.rotation(state)
        self._layers[layer].pre(
            self.pool.handle, self.pool.isa, state.residual, cos, sin, product.flatten(1)
        )
        state.q, state.k, state.v = product.split_with_sizes(
            [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads], dim=1
        )

    def post(self, layer: int, state: LayerState) -> None:
        """From attention to the end of the layer; the residual is updated in place."""
        attention = taken(state.attention, "attention").flatten(1)
        self._layers[layer].post(self.pool.handle, self.pool.isa, attention, state.residual)
        state.q = state.k = state.v = state.attention = None

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return len(self._layers)

    @property
    def scratch_token_bytes(self) -> int:
        """What `run_layers` takes per token while it runs."""
        return self._stack.scratch_token_bytes

    def run_layers(
        self, state: LayerState, pages: Tensor, slots: Tensor, batch: SplitBatch
    ) -> None:
        """Of every layer `pre`, append, attention over one tier's pages, `post`; all in one call.

        Args:
            pages: of all layers, `[layers, ...]` before what the plans were made for.
            slots: int64 [T]; where the tokens' keys and values go.
            batch: of all T tokens' attention.

        Raises:
            ValueError: slots, blocks or tokens that do not exist; nothing was written.
        """
        cos, sin = self.rotation(state)
        self._stack.run(
            self.pool.handle,
            self.pool.isa,
            state.residual,
            cos,
            sin,
            pages,
            slots,
            batch.decode_plan,
            batch.prefill_plan,
            self._spec.attention_scale,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and output head of `hidden` [n, hidden]: [n, vocab]."""
        normed = torch.empty_like(hidden)
        _native.normalize(self.pool.handle, self._final_norm, hidden, normed)
        return linear(self.pool, self._head, normed)

    def rotation(self, state: LayerState) -> tuple[Tensor | None, Tensor | None]:
        """Cosines and signed sines [T, head_dim] of the state's positions, made once."""
        if self._frequencies is None:
            return None, None
        if state.rotation is None:
            state.rotation = rotation_of(state.positions, self._frequencies)
        cos, sin = state.rotation
        return cos.squeeze(1), sin.squeeze(1)


def _layer(spec: ModelSpec, modules: Modules) -> _native.Layer:
    return _native.Layer(
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        attention_norm=_norm(spec, modules["attention_norm"]),
        qkv=_linear(modules["qkv"]).handle,
        query_norm=_norm(spec, modules["q_norm"]) if spec.qk_norm else None,
        key_norm=_norm(spec, modules["k_norm"]) if spec.qk_norm else None,
        output=_linear(modules["output"]).handle,
        mlp_norm=_norm(spec, modules["mlp_norm"]),
        up=_linear(modules["gate_up" if spec.gated else "fc0"]).handle,
        down=_linear(modules["down" if spec.gated else "fc1"]).handle,
        activation=_ACTIVATIONS[spec.activation],
        gated=spec.gated,
    )


def _norm(spec: ModelSpec, affine: Affine) -> _native.Norm:
    bias = None if affine.bias is None else affine.bias.float()
    return _native.Norm(affine.weight.float(), bias, spec.norm_eps)


def _linear(affine: Affine) -> NativeLinear:
    bias = None if affine.bias is None else affine.bias.float()
    return NativeLinear.of(affine.weight, bias)
