"""Time of a mixture of experts of which the accelerator has some experts and the CPU the others."""

from collections.abc import Collection
from dataclasses import dataclass

from tandem.cost.expert_use import ExpertUse
from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, cost_of, stage_cost
from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import split_experts, split_post

_CHOICE_BYTES = 12  # of a token and one of its experts: which, and its weight


@dataclass(frozen=True, slots=True)
class MixturePart:
    """Some experts of one layer, at work on `tokens` tokens.

    Attributes:
        experts: ids.
        use: how likely tokens are to go to them.
    """

    spec: ModelSpec
    layer: int
    experts: Collection[int]
    use: ExpertUse
    tokens: int

    def cost(self, dtype: DType, rates: DeviceRates) -> CostBreakdown:
        """On a device, without the router; weights of experts that get a token are read once."""
        operations = layer_operations(self.spec, self.layer)
        part = self.use.of(self.layer, self.experts)
        elements = self.read_elements
        flops, kernels = 0.0, 0
        for op in split_experts(operations).mlp.of(operations):
            flops += part * op.flops(self.tokens)
            elements += part * op.activation_elements(self.tokens)
            kernels += 1
        return cost_of(flops, elements * dtype.size_bytes, kernels, rates)

    @property
    def read_elements(self) -> float:
        """Of weights, as expected."""
        operations = layer_operations(self.spec, self.layer)
        each = sum(op.weights[0].elements for op in operations if op.experts is not None)
        return each * self.use.touched(self.layer, self.experts, self.tokens)


def choice_bytes(spec: ModelSpec, tokens: int) -> int:
    """What tells the CPU where tokens go."""
    return 0 if spec.experts is None else tokens * spec.experts.per_token * _CHOICE_BYTES


def route_cost(
    spec: ModelSpec, layer: int, tokens: int, dtype: DType, rates: DeviceRates
) -> CostBreakdown:
    """Between the output projection and the experts: norm and router."""
    operations = layer_operations(spec, layer)
    first, last = split_post(operations).mlp.start, split_experts(operations).mlp.start
    return stage_cost(operations[first:last], tokens, dtype, rates)
