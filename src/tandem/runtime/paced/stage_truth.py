"""What a layer's operations outside attention truly cost on the emulated accelerator."""

from collections.abc import Sequence

from tandem.cost.quantized import PreciseStage, gpu_kernels
from tandem.cost.stage import CostBreakdown, stage_cost
from tandem.runtime.paced.perturbed_rates import Perturbation, PerturbedRates
from tandem.runtime.paced.types import PacedTypes
from tandem.spec.hardware import AcceleratorFacts
from tandem.spec.operations import Operation


class StageTruth:
    """Memory by the tokens, compute by whole tiles of them; maps in few bits as kernels for them
    multiply, by codes or by what a kernel of its own has dequantized.
    """

    def __init__(
        self,
        types: PacedTypes,
        facts: AcceleratorFacts,
        true: PerturbedRates,
        change: Perturbation,
    ) -> None:
        self._types, self._rates, self._change = types, true.device, change
        self._dtype = types.precision.activations
        self._kernels = gpu_kernels(facts, self._dtype)
        self._coded: dict[tuple[int, tuple[str, ...]], PreciseStage] = {}

    def cost(self, layer: int, operations: Sequence[Operation], tokens: int) -> CostBreakdown:
        """Of one layer's operations."""
        cost, whole = self._of(layer, operations, tokens), self._change.whole_tiles(tokens)
        if whole == tokens:
            return cost
        return cost._replace(compute_s=self._of(layer, operations, whole).compute_s)

    def _of(self, layer: int, operations: Sequence[Operation], tokens: int) -> CostBreakdown:
        if layer not in self._types.layers:
            return stage_cost(operations, tokens, self._dtype, self._rates)
        key = layer, tuple(op.name for op in operations)
        if key not in self._coded:
            precision = self._types.of_layer(layer)
            self._coded[key] = PreciseStage(operations, precision, self._kernels)
        return self._coded[key].cost(tokens, self._rates)
