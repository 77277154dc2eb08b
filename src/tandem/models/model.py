"""A decoder model: embedding, any stage of any layer, logits. Attention is the caller's."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.models.expert_hits import ExpertHits
from tandem.models.layer_state import LayerState
from tandem.models.layer_steps import norm
from tandem.models.linear import linear
from tandem.models.torch_layers import TorchLayers
from tandem.models.weights import Weights
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import (
    DefaultStages,
    Operation,
    Stage,
    default_stages,
    split_experts,
    split_post,
)

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool
    from tandem.models.host_layers import HostLayers
    from tandem.models.native_stages import NativeStages


class Model:
    """Weights with the maths of their architecture.

    Args:
        dtype: of activations; None: that of the weights.
        native: executes the default stages and the head on the compiled kernels, for weights in
            host memory and activations in float32; None: torch does.
        host: computes layers whose weights lie in host memory, for a sweep that leaves them there.

    Attributes:
        spec: the model's facts.
        weights: all weights, on one device in one dtype.
        dtype: of activations. device: of weights and activations.
        pool: threads of the compiled kernels, if they do any of the maths.
        expert_hits: how often tokens went to each expert.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Weights,
        dtype: torch.dtype | None = None,
        native: "NativeStages | None" = None,
        host: "HostLayers | None" = None,
    ) -> None:
        embedding = weights.outer["embedding"].weight
        self.spec: ModelSpec = spec
        self.weights: Weights = weights
        self.dtype: torch.dtype = dtype or embedding.dtype
        self.device: torch.device = embedding.device
        kinds = {spec.routed_experts(i): layer_operations(spec, i) for i in spec.distinct_layers}
        self._operations = kinds
        self._stages = {kind: default_stages(operations) for kind, operations in kinds.items()}
        self._outputs = {kind: split_post(operations).output for kind, operations in kinds.items()}
        self._routes = {
            kind: split_experts(operations).output
            for kind, operations in kinds.items()
            if kind is not None
        }
        self._staying = {layer: weights.staying(layer) for layer in weights.layers_apart}
        # Rounded to the activations' type, as the reference does. A number of Python's: a tensor
        # made in every step would be a copy that the host waits for.
        self._embedding_scale = float(torch.tensor(spec.embedding_scale, dtype=self.dtype))
        self._torch = TorchLayers(spec, weights.in_use(), self.device, self.dtype)
        self.native: NativeStages | None = native
        self._divided = weights.divided_layers
        self.host: HostLayers | None = host
        compiled = native or host
        self.pool: NativePool | None = None if compiled is None else compiled.pool
        self.expert_hits: ExpertHits = (native or self._torch).expert_hits
        if native is not None:
            self.expert_hits.include(self._torch.expert_hits)
        if host is not None:
            self.expert_hits.include(host.expert_hits)

    def operations(self, layer: int) -> tuple[Operation, ...]:
        """What a layer computes, in order."""
        return self._operations[self.spec.routed_experts(layer)]

    def stages(self, layer: int) -> DefaultStages:
        """The default cuts `pre, attend, post` of a layer."""
        return self._stages[self.spec.routed_experts(layer)]

    def output_stage(self, layer: int) -> Stage:
        """Of a layer's `post`, what comes before the MLP."""
        return self._outputs[self.spec.routed_experts(layer)]

    def route_stage(self, layer: int) -> Stage:
        """Of the `post` of a layer with experts, what comes before them."""
        kind = self.spec.routed_experts(layer)
        if kind is None:
            raise ValueError(f"layer {layer} has no experts")
        return self._routes[kind]

    def expert_sum(self, layer: int, state: LayerState) -> Tensor:
        """What the experts that stay on this device add to the residual: [T, hidden] float32.

        The state is at the end of `route_stage`, and stays there.
        """
        return self._torch.expert_sum(self._staying[layer], state)

    def other_columns(self, layer: int, state: LayerState) -> Tensor:
        """Of a divided MLP, what the columns that are not the CPU's make of the residual, with what
        is added once: [T, hidden]. The state, at the end of `output_stage`, stays there.
        """
        return self._torch.other_columns(layer, state)

    def add_branch(self, layer: int, branch: Tensor, state: LayerState) -> None:
        """End a layer from there with its MLP's result [T, hidden]."""
        self._torch.add_branch(layer, branch, state)

    def embed(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """Residual stream before the first layer: [T, hidden], new memory.

        Args:
            token_ids: [T] int64, each below the vocabulary's size.
            positions: [T] int; used by learned position embeddings only.
        """
        hidden = F.embedding(token_ids, self.weights.outer["embedding"].weight).to(self.dtype)
        if self._embedding_scale != 1.0:
            hidden *= self._embedding_scale
        if self.spec.position_offset is not None:
            learned = self.weights.outer["position_embedding"].weight
            hidden += F.embedding(positions.long() + self.spec.position_offset, learned)
        return hidden

    def run(self, stage: Stage, layer: int, state: LayerState) -> None:
        """Execute operations `[stage.start, stage.end)` of `layer`, updating `state` in place.

        The state must be at the cut `stage.start`; afterwards it is at `stage.end`. After `pre`
        it holds q, k and v, normed and rotated; the caller then sets `attention`.

        Raises:
            ValueError: the stage contains attention operations, or the state is at another cut.
        """
        native, stages = self.native, self.stages(layer)
        if layer in self._divided:
            native = None
        if native is not None and stage == stages.pre:
            native.pre(layer, state)
        elif native is not None and stage == stages.post:
            native.post(layer, state)
        else:
            self._torch.run(stage, layer, state)

    def hold_experts_still(self, most_tokens: int) -> None:
        """See `TorchLayers`."""
        self._torch.hold_experts_still(most_tokens)

    def keys_values(self, layer: int, state: LayerState) -> tuple[Tensor, Tensor]:
        """Keys and values of `layer` alone, from its inputs in `state`, which stay.

        Returns: [T, kv_heads, head_dim] each, as after `pre`.
        """
        return self._torch.keys_values(layer, state)

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and output head.

        Args:
            hidden: [n, hidden]; residual stream after the last layer.

        Returns:
            [n, vocab] float32.
        """
        if self.native is not None:
            logits = self.native.logits(hidden)
        else:
            normed = norm(self.spec, self.weights.outer["final_norm"], hidden)
            logits = linear(self.weights.outer["head"], normed).float()
        cap = self.spec.logit_soft_cap
        return logits.div_(cap).tanh_().mul_(cap) if cap else logits
