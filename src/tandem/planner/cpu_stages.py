"""Times of a layer's stages on the CPU, where its weights lie in host memory (ADR 0014, 0016)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tandem.cost.quantized import COMPILED, PreciseStage
from tandem.cost.rates import HOST_OPERATION_S, DeviceRates
from tandem.cost.stage import CostBreakdown, addition_cost, merge_cost
from tandem.cost.unlike_rows import UnlikeRows, least_stage
from tandem.plan.program import Part
from tandem.spec.dtype import DType
from tandem.spec.hardware import HostFacts
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation
from tandem.spec.precision import Precision

if TYPE_CHECKING:
    from tandem.planner.measured.host import MeasuredHost


class CpuTime(NamedTuple):
    """Duration if nothing else runs, and bytes in the host's memory meanwhile."""

    alone_s: float
    dram_bytes: float


class CpuStages:
    """By a roofline on the host's rates, or as measured; of experts, those that tokens need.

    Args:
        stages: operations by the part of a layer.
    """

    def __init__(
        self,
        model: ModelSpec,
        stages: Mapping[Part, Sequence[Operation]],
        precision: Precision,
        host: HostFacts,
        measured: "MeasuredHost | None",
    ) -> None:
        self._model, self._stages, self._measured = model, stages, measured
        self._summed = {
            part: PreciseStage(stage, precision, COMPILED) for part, stage in stages.items()
        }
        self._rates = DeviceRates(
            host.memory_bandwidth_bytes_per_s, host.flops_per_s, HOST_OPERATION_S
        )
        self._known: dict[tuple[Part, int, float], CpuTime] = {}

    def stage(self, part: Part, tokens: int, share: float = 1.0) -> CpuTime:
        """One stage on `tokens` tokens.

        Args:
            share: of experts, those that are the CPU's.
        """
        key = (part, tokens, share)
        if key not in self._known:
            operations = self._stages[part]
            found = self._time(self._summed[part].cost(tokens, self._rates).part(share))
            if self._measured is not None:
                alone_s = share * self._measured.stage_s(operations, tokens)
                found = found._replace(alone_s=alone_s)
            self._known[key] = found
        return self._known[key]

    def least(self, part: Part, rows: UnlikeRows) -> CpuTime | None:
        """A stage in passes of unlike numbers of tokens, in the mean; None: it takes no less than
        with alike ones, as far as is known.
        """
        stage = self._summed[part]
        if self._measured is not None or stage.is_convex:
            return None
        found = least_stage(stage, rows, self._rates)
        return CpuTime(found.total_s, found.memory_s * self._rates.bytes_per_s)

    def merge(self, tokens: int) -> CpuTime:
        """Partial attention results of `tokens` tokens."""
        return self._time(merge_cost(self._model, tokens, self._rates))

    def addition(self, tokens: int) -> CpuTime:
        """Two parts of an MLP's result of `tokens` tokens."""
        return self._time(addition_cost(self._model, tokens, DType.FLOAT32, self._rates))

    def _time(self, cost: CostBreakdown) -> CpuTime:
        return CpuTime(cost.total_s, cost.memory_s * self._rates.bytes_per_s)
