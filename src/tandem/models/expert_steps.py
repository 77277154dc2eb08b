"""The maths of a mixture of experts: router, and experts on the rows of their tokens.

By torch one expert at a time, of which the host asks how many tokens it has; on a GPU all at once,
in a few launches of Triton's. Softmax, choice and sums are as in transformers' Qwen3-MoE and
Mixtral; weights of experts stay in float32 until they have been applied.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tandem.models.layer_state import LayerState, Step, taken
from tandem.models.linear import linear
from tandem.models.triton_unit import triton_unit
from tandem.models.weight_layout import Affine, Modules
from tandem.spec.model import ExpertSpec

if TYPE_CHECKING:
    from tandem.kernels.triton_expert_products import ExpertMap, Weight
    from tandem.kernels.triton_support import TritonDevice

_KNOWN_LAYERS = 4096


class ExpertSteps:
    """Steps of `Router` and the experts' linear maps, singly and fused.

    Experts whose weights are not among the layer's are another device's, and left out.

    Args:
        gated: the activation of a gate, times its up; gives new memory.

    Attributes:
        most_held_still: of up to so many tokens every expert is computed for each, where Triton is
            not, so that nothing depends on what was chosen: for emulated graphs. Else 0.
    """

    def __init__(self, experts: ExpertSpec, gated: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._experts = experts
        self._gated = gated
        self._maps: dict[int, tuple[Modules, tuple[ExpertMap, ExpertMap] | None]] = {}
        self.most_held_still = 0
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
        """What the experts add to the residual, [T, hidden] float32; the state stays as it is."""
        unit = triton_unit(taken(state.x, "x"))
        if unit is not None:
            total = self.grouped_total(weights, state, unit)
            if total is not None:
                return total
        if state.num_tokens <= self.most_held_still:
            return self._total_of_all(weights, state)
        return self.total_in_turn(weights, state)

    def grouped_total(
        self, weights: Modules, state: LayerState, unit: "TritonDevice"
    ) -> Tensor | None:
        """`total` by Triton's kernels; None if weights are not alike, or so many tokens torch's."""
        from tandem.kernels.triton_expert_products import expert_total, pays_together

        places = state.num_tokens * self._experts.per_token
        maps = self._maps_of(weights)
        if maps is None or not pays_together(places, self._experts.count, unit):
            return None
        x, chosen = taken(state.x, "x"), taken(state.experts, "experts")
        shares = taken(state.expert_weights, "expert_weights")
        return expert_total(x, chosen, shares, *maps, self._gated, unit)

    def _maps_of(self, weights: Modules) -> "tuple[ExpertMap, ExpertMap] | None":
        known = self._maps.get(id(weights))
        if known is None:  # kept with the weights, so that no others can get the same id
            if len(self._maps) == _KNOWN_LAYERS:
                self._maps.clear()
            known = self._maps[id(weights)] = (weights, self._make_maps(weights))
        return known[1]

    def _make_maps(self, weights: Modules) -> "tuple[ExpertMap, ExpertMap] | None":
        from tandem.kernels.triton_expert_products import ExpertMap

        numbers = range(self._experts.count)
        made = [
            ExpertMap.of([_stored(weights.get(f"experts.{n}.{name}")) for n in numbers])
            for name in ("gate_up", "down")
        ]
        return None if made[0] is None or made[1] is None else (made[0], made[1])

    def _total_of_all(self, weights: Modules, state: LayerState) -> Tensor:
        """By each expert all tokens, those that did not choose it with a share of 0."""
        x, chosen = taken(state.x, "x"), taken(state.experts, "experts")
        shares = taken(state.expert_weights, "expert_weights")
        total = _zeros_like(state.residual)
        for expert in range(self._experts.count):
            if f"experts.{expert}.down" in weights:
                share = shares.masked_fill(chosen != expert, 0.0).sum(-1, keepdim=True)
                total.add_(self._mlp(weights, expert, x) * share)
        return total

    def total_in_turn(self, weights: Modules, state: LayerState) -> Tensor:
        """`total` by torch, one expert after the other: nothing is kept of one for the next."""
        x, shares = taken(state.x, "x"), taken(state.expert_weights, "expert_weights").flatten()
        total = _zeros_like(state.residual)
        for expert, places in self._groups(weights, state):
            tokens = places // self._experts.per_token
            rows = self._mlp(weights, expert, x.index_select(0, tokens))
            total.index_add_(0, tokens, rows * shares[places, None])
            del rows
        return total

    def _mlp(self, weights: Modules, expert: int, x: Tensor) -> Tensor:
        """One expert's results for some rows."""
        both = linear(weights[f"experts.{expert}.gate_up"], x)
        gate, up = both.chunk(2, dim=-1)
        inner = self._gated(gate, up)
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


def _stored(affine: Affine | None) -> "Weight | None":
    """As it lies in memory; an expert has no bias."""
    if affine is None:
        return None
    return affine.weight if affine.quantized is None else affine.quantized
