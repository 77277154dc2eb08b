"""Time of a mixture of experts of which the accelerator has some experts and the CPU the others."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from tandem.cost.expert_use import ExpertUse
from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, cost_of, stage_cost
from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation, split_experts, split_post
from tandem.spec.parameters import expert_matrix_bytes, mlp_matrix_bytes, movable_layer
from tandem.spec.precision import Precision

_CHOICE_BYTES = 12  # of a token and one of its experts: which, and its weight


@dataclass(frozen=True, slots=True)
class MixtureBytes:
    """Of the matrices of a layer's mixture.

    Attributes:
        expert: of each expert.
    """

    router: int
    expert: int
    count: int

    @staticmethod
    def of(spec: ModelSpec, precision: Precision) -> "MixtureBytes":
        """Alike in all layers that have experts."""
        assert spec.experts is not None
        layer, count = movable_layer(spec), spec.experts.count
        expert = expert_matrix_bytes(spec, precision, layer)
        return MixtureBytes(
            mlp_matrix_bytes(spec, precision, layer) - count * expert, expert, count
        )

    def left(self, resident: int) -> int:
        """Without so many experts, and without the router, which goes with the first of them."""
        router = 0 if resident else self.router
        return router + (self.count - resident) * self.expert


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
        if not self.experts:
            return CostBreakdown()
        part = self.use.of(self.layer, self.experts)
        elements = self.read_elements
        flops, kernels = 0.0, 0
        for op in _after_router(self.spec):
            flops += part * op.flops(self.tokens)
            elements += part * op.activation_elements(self.tokens)
            kernels += 1
        return cost_of(flops, elements * dtype.size_bytes, kernels, rates)

    @property
    def read_elements(self) -> float:
        """Of weights, as expected."""
        each = sum(op.weights[0].elements for op in _after_router(self.spec) if op.weights)
        return each * self.use.touched(self.layer, self.experts, self.tokens)


def choice_bytes(spec: ModelSpec, tokens: int) -> int:
    """What tells the CPU where tokens go."""
    return 0 if spec.experts is None else tokens * spec.experts.per_token * _CHOICE_BYTES


def route_cost(spec: ModelSpec, tokens: int, dtype: DType, rates: DeviceRates) -> CostBreakdown:
    """Between the output projection and the experts: norm and router."""
    return stage_cost(_to_router(spec), tokens, dtype, rates)


@lru_cache(maxsize=8)
def _after_router(spec: ModelSpec) -> tuple[Operation, ...]:
    operations = _with_experts(spec)
    return split_experts(operations).mlp.of(operations)


@lru_cache(maxsize=8)
def _to_router(spec: ModelSpec) -> tuple[Operation, ...]:
    operations = _with_experts(spec)
    return operations[split_post(operations).mlp.start : split_experts(operations).mlp.start]


def _with_experts(spec: ModelSpec) -> tuple[Operation, ...]:
    """Alike in all layers that have some."""
    layers = (layer for layer in spec.distinct_layers if spec.routed_experts(layer) is not None)
    return layer_operations(spec, next(layers))
