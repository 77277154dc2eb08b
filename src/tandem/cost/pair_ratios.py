"""Ratios of an accelerator and its host that decide what hybrid work gains; real against scaled."""

from dataclasses import dataclass

from tandem.cost.rates import accelerator_rates
from tandem.cost.stage import stage_cost
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import kv_bytes_per_token, weight_bytes

TOLERANCE = 0.2


@dataclass(frozen=True, slots=True)
class Cell:
    """A pair of accelerator and host with what runs on it.

    Attributes:
        context: mean tokens of a sequence.
    """

    hardware: HardwareSpec
    model: ModelSpec
    dtype: DType
    context: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """One ratio of the real pair beside the scaled one.

    Attributes:
        bias: what a larger ratio does to the gain of hybrid work over the accelerator alone.
    """

    name: str
    real: float
    scaled: float
    bias: str

    @property
    def off(self) -> float:
        """Relative deviation of the scaled pair."""
        return self.scaled / self.real - 1

    @property
    def flagged(self) -> bool:
        """Off by more than 20%."""
        return abs(self.off) > TOLERANCE

    def __str__(self) -> str:
        text = f"{self.name}: real {self.real:.3g}, scaled {self.scaled:.3g} ({self.off:+.0%})"
        if not self.flagged:
            return text
        return f"{text}, off by more than {TOLERANCE:.0%}; larger {self.bias}"


_BIAS = {
    "accelerator to host memory bandwidth": "lowers the gain",
    "accelerator FLOP per byte": "raises the gain (joining rows costs less)",
    "host FLOP per byte": "raises the gain",
    "accelerator memory to weights": "lowers the gain (more fits the accelerator)",
    "context to accelerator memory": "raises the gain",
    "link to accelerator bandwidth": "raises the gain",
    "launch to layer time": "lowers the gain",
}


def compare_cells(real: Cell, scaled: Cell) -> tuple[Ratio, ...]:
    """Every ratio of both cells; disks are left out, no program uses them yet."""
    of_real, of_scaled = _ratios(real), _ratios(scaled)
    return tuple(Ratio(name, of_real[name], of_scaled[name], _BIAS[name]) for name in _BIAS)


def _ratios(cell: Cell) -> dict[str, float]:
    facts, host = cell.hardware.accelerator, cell.hardware.host
    rates = accelerator_rates(cell.hardware, cell.dtype)
    weights = weight_bytes(cell.model, cell.dtype)
    operations = [op for op in layer_operations(cell.model) if not op.is_attention]
    layer = stage_cost(operations, 1, cell.dtype, rates)
    context_bytes = cell.context * kv_bytes_per_token(cell.model, cell.dtype)
    return {
        "accelerator to host memory bandwidth": rates.bytes_per_s
        / host.memory_bandwidth_bytes_per_s,
        "accelerator FLOP per byte": rates.flops_per_s / rates.bytes_per_s,
        "host FLOP per byte": host.flops_per_s / host.memory_bandwidth_bytes_per_s,
        "accelerator memory to weights": facts.memory_bytes / weights,
        "context to accelerator memory": context_bytes / facts.memory_bytes,
        "link to accelerator bandwidth": cell.hardware.link.h2d_bytes_per_s / rates.bytes_per_s,
        "launch to layer time": facts.launch_latency_s / layer.total_s,
    }
