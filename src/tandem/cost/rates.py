"""Rates that work is divided by."""

from dataclasses import dataclass
from math import inf

from tandem.spec.dtype import DType
from tandem.spec.hardware import TILED_BYTES, HardwareSpec

HOST_OPERATION_S = 10e-6
"""What an operation costs the CPU beside its work: it is handed to threads, and waited for."""


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What one device reaches, efficiencies included.

    Attributes:
        kernel_overhead_s: per kernel, beside its work.
        tile_rows: linear maps compute so many rows at a time, the last ones as if they were as many
            (ADR 0059). code_tile_rows: likewise, of products by codes.
        counted_rows: beyond so many, a number of rows is a mean that says nothing of the last tile,
            whose empty rows are not counted.
        quantize_share, dequantize_share: of its memory's rate, what kernels reach that do nothing
            but turn elements into codes, and codes into elements.
    """

    bytes_per_s: float
    flops_per_s: float
    kernel_overhead_s: float
    tile_rows: int = 1
    code_tile_rows: int = 1
    counted_rows: float = inf
    quantize_share: float = 1.0
    dequantize_share: float = 1.0

    def tile(self, *, by_codes: bool = False) -> int:
        """Rows that a linear map computes at a time."""
        return self.code_tile_rows if by_codes else self.tile_rows

    def whole_tiles(self, rows: int, *, by_codes: bool = False) -> int:
        """Rows that a linear map of so many computes, as far as known; never fewer for more."""
        tile = self.tile(by_codes=by_codes)
        if tile == 1:
            return rows
        counted = rows if rows <= self.counted_rows else int(self.counted_rows)
        return max(rows, -(-counted // tile) * tile)


@dataclass(frozen=True, slots=True)
class LinkRates:
    """One direction of a link."""

    bytes_per_s: float
    latency_s: float


def accelerator_rates(hardware: HardwareSpec, dtype: DType) -> DeviceRates:
    """Reached rates of the accelerator for maths in `dtype`."""
    facts, tiled = hardware.accelerator, dtype.size_bytes == TILED_BYTES
    return DeviceRates(
        facts.memory_bandwidth_bytes_per_s * facts.memory_efficiency,
        facts.flops_per_s[dtype] * facts.compute_efficiency,
        facts.kernel_overhead_s,
        (facts.tile_rows or 1) if tiled else 1,
        (facts.code_tile_rows or 1) if tiled else 1,
        quantize_share=facts.quantize_share or 1.0,
        dequantize_share=facts.dequantize_share or 1.0,
    )


def h2d_rates(hardware: HardwareSpec) -> LinkRates:
    """Host to accelerator."""
    return LinkRates(hardware.link.h2d_bytes_per_s, hardware.link.latency_s)


def d2h_rates(hardware: HardwareSpec) -> LinkRates:
    """Accelerator to host."""
    return LinkRates(hardware.link.d2h_bytes_per_s, hardware.link.latency_s)
