"""The maths of a mixture of experts: router, and experts one at a time on the rows of their tokens.

Softmax, choice and sums are as in transformers' Qwen3-MoE and Mixtral; weights of experts stay in
float32 until they have been applied.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from tandem.models.layer_state import LayerState, Step, taken
from tandem.models.linear import linear
from tandem.models.weight_layout import Modules
from tandem.spec.model import ExpertSpec


class ExpertSteps:
    """Steps of `Router` and the experts' linear maps, singly and fused.

    Experts whose weights are not among the layer's are another device's, and left out.

    Args:
        activation: of a tensor; gives new memory.
    """

    def __init__(self, experts: ExpertSpec, activation: Callable[[Tensor], Tensor]) -> None:
        self._experts = experts
        self._activation = activation
        self.singles: Mapping[str, Step] = {
            "Router": self._route,
            "Experts.gate": self._gate,
            "Experts.up": self._up,
            "Experts.down": self._down,
        }
        self.fused: Mapping[tuple[str, ...], Step] = {
            ("Experts.gate", "Experts.up", "Experts.act", "Experts.down"): self._all
        }

    def _route(self, weights: Modules, state: LayerState) -> None:
        scores = linear(weights["router"], taken(state.x, "x"))
        shares = torch.softmax(scores, dim=-1, dtype=torch.float32)
        chosen, state.experts = shares.topk(self._experts.per_token, dim=-1)
        if self._experts.renormalized:
            chosen = chosen / chosen.sum(dim=-1, keepdim=True)
        state.expert_weights = chosen

    def _all(self, weights: Modules, state: LayerState) -> None:
        state.residual.add_(self.total(weights, state))
        state.x = state.experts = state.expert_weights = None

    def total(self, weights: Modules, state: LayerState) -> Tensor:
        """What the experts add to the residual, [T, hidden] float32; the state stays as it is.

        All experts' work, without anything kept of one when the next one begins.
        """
        x, shares = taken(state.x, "x"), taken(state.expert_weights, "expert_weights").flatten()
        total = _zeros_like(state.residual)
        for expert, places in self._groups(weights, state):
            tokens = places // self._experts.per_token
            rows = self._rows(weights, expert, x, tokens)
            total.index_add_(0, tokens, rows * shares[places, None])
            del rows
        return total

    def _rows(self, weights: Modules, expert: int, x: Tensor, tokens: Tensor) -> Tensor:
        """One expert's results for some tokens."""
        both = linear(weights[f"experts.{expert}.gate_up"], x.index_select(0, tokens))
        gate, up = both.chunk(2, dim=-1)
        inner = self._activation(gate).mul_(up)
        return linear(weights[f"experts.{expert}.down"], inner)

    def _gate(self, weights: Modules, state: LayerState) -> None:
        state.gate = self._project(weights, state, "gate")

    def _up(self, weights: Modules, state: LayerState) -> None:
        state.up = self._project(weights, state, "up")
        state.x = None

    def _project(self, weights: Modules, state: LayerState, name: str) -> Tensor:
        """[T, k, intermediate]: of each token by each of its experts."""
        x, k = taken(state.x, "x"), self._experts.per_token
        made = x.new_zeros(state.num_tokens * k, self._experts.intermediate_size)
        for expert, places in self._groups(weights, state):
            rows = x.index_select(0, places // k)
            made[places] = linear(weights[f"experts.{expert}.{name}"], rows)
        return made.unflatten(0, (-1, k))

    def _down(self, weights: Modules, state: LayerState) -> None:
        inner = taken(state.mlp, "mlp").flatten(0, 1)
        shares = taken(state.expert_weights, "expert_weights").flatten()
        total = _zeros_like(state.residual)
        for expert, places in self._groups(weights, state):
            rows = linear(weights[f"experts.{expert}.down"], inner.index_select(0, places))
            tokens = places // self._experts.per_token
            total.index_add_(0, tokens, rows * shares[places, None])
        state.residual.add_(total)
        state.mlp = state.experts = state.expert_weights = None

    def _groups(self, weights: Modules, state: LayerState) -> Iterator[tuple[int, Tensor]]:
        """Every expert here that a token goes to, and where: indices into the flattened [T, k]."""
        chosen = taken(state.experts, "experts").flatten()
        order = chosen.argsort(stable=True)
        counts: list[int] = chosen.bincount(minlength=self._experts.count).tolist()
        for expert, places in enumerate(order.split(counts)):
            if counts[expert] and f"experts.{expert}.down" in weights:
                yield expert, places


def _zeros_like(residual: Tensor) -> Tensor:
    """To add experts' results up in: float32, so that each of them is not rounded to 16 bits."""
    return torch.zeros_like(residual, dtype=torch.float32)
