"""Accelerators and hosts of NEO and APEX by their data sheets."""

from dataclasses import dataclass

from tandem.cost.apex.overlap import attainable_gain

MEMORY_EFFICIENCY = 0.85  # usual for streaming reads
MEMORY_SHARE = 0.9  # of the accelerator's memory that an engine uses; vLLM's default
COMPUTE_EFFICIENCY = 0.7  # large dense products


@dataclass(frozen=True, slots=True)
class HybridPair:
    """One accelerator (or several), its host, and a model in 16 bits.

    Attributes:
        host_bytes_per_s: peak of the memory channels that belong to the cores used.
        flops_per_s: 16-bit tensor cores, dense.
        kv_token_bytes: keys and values of one token, all layers.
    """

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: float
    host_bytes_per_s: float
    parameters: float
    kv_token_bytes: int

    @property
    def weight_bytes(self) -> float:
        """Weights in 16 bits."""
        return 2 * self.parameters

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
        return 2 * self.parameters * prompt / (self.flops_per_s * COMPUTE_EFFICIENCY)

    def decode_s(self, prompt: int, output: int) -> float:
        """A request's share of the accelerator's decoding, its memory full."""
        rows = self.kv_bytes / (self.kv_token_bytes * (prompt + output / 2))
        return output * self.sweep_s / rows


LLAMA_8B = (8.03e9, 2 * 32 * 1024 * 2)  # Llama-3.1-8B: 8 KV heads of 128
LLAMA_7B = (6.74e9, 2 * 32 * 4096 * 2)  # Llama-2-7B: 32 heads of 128
LLAMA_70B = (70.6e9, 2 * 80 * 1024 * 2)  # Llama-3.1-70B
# One channel: 8 bytes times its transfer rate.
_DDR4_3200, _DDR4_2933, _DDR4_2666, _DDR5_4800 = 25.6e9, 23.5e9, 21.3e9, 38.4e9

# AWS: 16 of the 96 vCPUs of an EPYC 7R32 with 8 channels.
G5_4XLARGE = HybridPair("A10G", 24e9, 600e9, 70e12, 8 * _DDR4_3200 / 6, *LLAMA_8B)
# AWS: 16 of the 96 vCPUs of two Xeon P-8259CL with 6 channels each.
G4DN_4XLARGE = HybridPair("T4", 16e9, 320e9, 65e12, 12 * _DDR4_2933 / 6, *LLAMA_7B)
# One NUMA node of four of two Xeon 8462Y+ with 8 channels each.
HGX_TWO_H100 = HybridPair("H100", 160e9, 6.7e12, 1979e12, 16 * _DDR5_4800 / 4, *LLAMA_70B)
# Two Xeon Gold 6342 with 8 channels each.
APEX_A10 = HybridPair("A10", 24e9, 600e9, 125e12, 16 * _DDR4_3200, *LLAMA_8B)
# Two Xeon Gold 6130 with 6 channels each.
APEX_T4 = HybridPair("T4", 16e9, 320e9, 65e12, 12 * _DDR4_2666, *LLAMA_7B)
