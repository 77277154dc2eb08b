"""The stages of layers by torch, on any device."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tandem.models.expert_hits import ExpertHits
from tandem.models.layer_state import LayerState, Step
from tandem.models.layer_steps import LayerSteps
from tandem.models.rotary import Rotary
from tandem.models.weight_layout import Modules
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.operations import Stage, default_stages, split_post


class TorchLayers:
    """Any stage of some layers.

    Args:
        layers: weights by layer, at least those of the stages that are run. device: where they
            are.
        dtype: of activations.

    Attributes:
        expert_hits: how often tokens went to each expert.
    """

    def __init__(
        self,
        spec: ModelSpec,
        layers: Mapping[int, Modules],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.dtype: torch.dtype = dtype
        self.pool: None = None
        self._spec = spec
        self._layers = layers
        self.expert_hits = ExpertHits(spec, device)
        kinds = {spec.routed_experts(i): layer_operations(spec, i) for i in spec.distinct_layers}
        self._operations = kinds
        self._stages = {kind: default_stages(operations) for kind, operations in kinds.items()}
        cuts = {kind: split_post(operations) for kind, operations in kinds.items()}
        self._mlps = {kind: cut.mlp for kind, cut in cuts.items()}
        self._outputs = {kind: cut.output for kind, cut in cuts.items()}
        ropes = [Rotary.of(rope, spec.head_dim, device) for rope in spec.ropes]
        self._layer_steps = [LayerSteps(spec, ropes, i) for i in range(max(1, len(ropes)))]
        self._steps: dict[tuple[Stage, int, ExpertSpec | None], tuple[Step, ...]] = {}

    def pre(self, layer: int, state: LayerState) -> None:
        """From the residual to q, k and v, normed and rotated."""
        self.run(self._stages[self._spec.routed_experts(layer)].pre, layer, state)

    def post(self, layer: int, state: LayerState) -> None:
        """From attention to the end of the layer."""
        self.run(self._stages[self._spec.routed_experts(layer)].post, layer, state)

    def keys_values(self, layer: int, state: LayerState) -> tuple[Tensor, Tensor]:
        """Keys and values [T, kv_heads, head_dim] of a layer's inputs, which stay."""
        steps = self._layer_steps[self._spec.rope_index(layer)]
        return steps.keys_values(self._layers[layer], state)

    def mlp(self, layer: int, state: LayerState) -> None:
        """From the norm before the MLP to the end of the layer; the state may hold a choice of
        experts that was made elsewhere.
        """
        mlp = self._mlps[self._spec.routed_experts(layer)]
        if state.experts is None:
            self.run(mlp, layer, state)
            return
        self.run(Stage(mlp.start, mlp.start + 1), layer, state)
        state.residual.add_(self.expert_sum(self._layers[layer], state))
        state.x = state.experts = state.expert_weights = None

    def columns(self, layer: int, state: LayerState) -> None:
        """Of a divided MLP, what its first columns add to the branch, in the residual's place."""
        steps, weights = self._layer_steps[0], self._layers[layer]
        state.residual = steps.columns(weights, steps.mlp_input(weights, state))

    def output(self, layer: int, state: LayerState) -> None:
        """From attention to before the norm of the MLP."""
        self.run(self._outputs[self._spec.routed_experts(layer)], layer, state)

    def other_columns(self, layer: int, state: LayerState) -> Tensor:
        """Of a divided MLP, what the others add to it: [T, hidden]; the state stays."""
        steps, weights = self._layer_steps[0], self._layers[layer]
        return steps.columns(weights, steps.mlp_input(weights, state), first=False)

    def add_branch(self, layer: int, branch: Tensor, state: LayerState) -> None:
        """End a layer with its MLP's result [T, hidden], before the norm behind it."""
        self._layer_steps[0].add_branch(self._layers[layer], branch, state)

    def expert_sum(self, weights: Modules, state: LayerState) -> Tensor:
        """What the experts among a layer's weights add to the residual: [T, hidden] float32.

        The state, after the router, stays as it is.
        """
        steps = self._layer_steps[0].experts
        assert steps is not None
        return steps.total(weights, state)

    def hold_experts_still(self, most_tokens: int) -> None:
        """Compute every expert for each of up to so many tokens, whatever they have chosen, where
        the host would have to ask: so that it can be done again by what lies in memory alone.
        """
        for steps in self._layer_steps:
            if steps.experts is not None:
                steps.experts.most_held_still = most_tokens

    def run(self, stage: Stage, layer: int, state: LayerState) -> None:
        """Execute operations `[stage.start, stage.end)` of `layer`, updating `state` in place.

        Raises:
            ValueError: the stage contains attention operations, or the state is at another cut.
        """
        key = (stage, self._spec.rope_index(layer), self._spec.routed_experts(layer))
        steps = self._steps.get(key)
        if steps is None:
            steps = self._layer_steps[key[1]].of(self._operations[key[2]], stage)
            self._steps[key] = steps
        weights = self._layers[layer]
        for step in steps:
            chosen = state.experts
            step(weights, state)
            if state.experts is not None and chosen is None:
                self.expert_hits.add(layer, state.experts)
