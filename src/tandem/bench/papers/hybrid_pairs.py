"""Accelerators and hosts of NEO and APEX by their data sheets."""

from dataclasses import dataclass

from tandem.bench.papers.models import MODELS
from tandem.cost.apex.overlap import attainable_gain
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import kv_bytes_per_token, num_parameters, weight_bytes

MEMORY_EFFICIENCY = 0.85  # usual for streaming reads
MEMORY_SHARE = 0.9  # of the accelerator's memory that an engine uses; vLLM's default
COMPUTE_EFFICIENCY = 0.7  # large dense products


@dataclass(frozen=True, slots=True)
class HybridPair:
    """One accelerator (or several), its host, and a model in 16 bits.

    Attributes:
        host_bytes_per_s: peak of the memory channels that belong to the cores used.
        flops_per_s: 16-bit tensor cores, dense.
    """

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: float
    host_bytes_per_s: float
    model: ModelSpec

    @property
    def weight_bytes(self) -> float:
        """Weights in 16 bits."""
        return weight_bytes(self.model, DType.FLOAT16)

    @property
    def kv_bytes(self) -> float:
        """KV cache that the accelerator has room for."""
        return self.memory_bytes * MEMORY_SHARE - self.weight_bytes

    @property
    def sweep_s(self) -> float:
        """A decoding sweep of the accelerator alone, its memory full: weights and KV read once."""
        rate = self.memory_bytes_per_s * MEMORY_EFFICIENCY
        return (self.weight_bytes + self.kv_bytes) / rate

    def decode_gain(self, host_share: float) -> float:
        """Bound of the gain in decoded tokens if the host reaches a share of its peak."""
        return attainable_gain(host_share * self.host_bytes_per_s, self.sweep_s, self.kv_bytes)

    def prefill_s(self, prompt: int) -> float:
        """A request's prompt on the accelerator."""
        return 2 * num_parameters(self.model) * prompt / (self.flops_per_s * COMPUTE_EFFICIENCY)

    def decode_s(self, prompt: int, output: int) -> float:
        """A request's share of the accelerator's decoding, its memory full."""
        row_bytes = kv_bytes_per_token(self.model, DType.FLOAT16) * (prompt + output / 2)
        rows = self.kv_bytes / row_bytes
        return output * self.sweep_s / rows


# One channel: 8 bytes times its transfer rate.
_DDR4_3200, _DDR4_2933, _DDR4_2666, _DDR5_4800 = 25.6e9, 23.5e9, 21.3e9, 38.4e9

# AWS: 16 of the 96 vCPUs of an EPYC 7R32 with 8 channels.
G5_4XLARGE = HybridPair("A10G", 24e9, 600e9, 70e12, 8 * _DDR4_3200 / 6, MODELS["LLaMA-3.1-8B"])
# AWS: 16 of the 96 vCPUs of two Xeon P-8259CL with 6 channels each.
G4DN_4XLARGE = HybridPair("T4", 16e9, 320e9, 65e12, 12 * _DDR4_2933 / 6, MODELS["LLaMA-2-7B"])
# One NUMA node of four of two Xeon 8462Y+ with 8 channels each.
HGX_TWO_H100 = HybridPair(
    "H100", 160e9, 6.7e12, 1979e12, 16 * _DDR5_4800 / 4, MODELS["LLaMA-3.1-70B"]
)
# Two Xeon Gold 6342 with 8 channels each.
APEX_A10 = HybridPair("A10", 24e9, 600e9, 125e12, 16 * _DDR4_3200, MODELS["LLaMA-3.1-8B"])
# Two Xeon Gold 6130 with 6 channels each.
APEX_T4 = HybridPair("T4", 16e9, 320e9, 65e12, 12 * _DDR4_2666, MODELS["LLaMA-2-7B"])
