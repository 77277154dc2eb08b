"""Facts of an accelerator, the link to it and its host, from data sheets and measurements."""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.spec.dtype import DType

TILED_BYTES = 2
"""Of an element of the types whose products' tiles are told."""


@dataclass(frozen=True, slots=True)
class AcceleratorFacts:
    """An accelerator by its data sheet, and which share of that is reached in practice.

    Attributes:
        memory_bytes: capacity that a program can use.
        memory_bandwidth_bytes_per_s, flops_per_s: peaks; the latter by element type.
        memory_efficiency, compute_efficiency: reached shares of the peaks, above 0 and at most 1.
        launch_latency_s: from the host's submission to the earliest start on the device.
        kernel_overhead_s: time that each kernel costs the device beside its work.
        compute_capability: as CUDA counts (8.9), which decides what kernels can do; None if not
            known.
        tile_rows: of how many rows, in whole tiles, products of 16-bit types compute each, as
            measured; None if not known.
        code_tile_rows: likewise, of products of these by codes.
        quantize_share, dequantize_share: kernels that turn 16 bits into codes, and codes into 16
            bits, as measured: bytes that they read and write, over those of a copy in as much time;
            None if not known, and taken for 1.
    """

    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    memory_efficiency: float
    compute_efficiency: float
    launch_latency_s: float
    kernel_overhead_s: float
    flops_per_s: Mapping[DType, float]
    compute_capability: float | None = None
    tile_rows: int | None = None
    code_tile_rows: int | None = None
    quantize_share: float | None = None
    dequantize_share: float | None = None


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The link between host and accelerator; rates are those reached from pinned memory.

    Attributes:
        latency_s: what a copy costs beside its bytes.
    """

    h2d_bytes_per_s: float
    d2h_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The host that the accelerator is paired with.

    Attributes:
        memory_bandwidth_bytes_per_s: read rate of all cores together, as reached.
        flops_per_s: float32 matrix products on all cores, as reached.
        cores: physical ones that the other figures are for; None if not known.
        peak_memory_bandwidth_bytes_per_s: of the memory channels, which these cores may share with
            others; None if not known.
        disk_bytes_per_s: read rate of the disk that weights are on, past the page cache; None if
            not known.
        shared_memory_bandwidth_bytes_per_s: of the memory, for cores and copies together, where
            that is more than these cores read; None: as much.
    """

    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    flops_per_s: float
    cores: int | None = None
    peak_memory_bandwidth_bytes_per_s: float | None = None
    disk_bytes_per_s: float | None = None
    shared_memory_bandwidth_bytes_per_s: float | None = None

    @property
    def pool_bytes_per_s(self) -> float:
        """What cores and copies over the link share."""
        shared = self.shared_memory_bandwidth_bytes_per_s
        return self.memory_bandwidth_bytes_per_s if shared is None else shared


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """One pair of accelerator and host.

    Attributes:
        scaled_from: name of the real pair that this one imitates on a smaller machine, or None.
    """

    name: str
    accelerator: AcceleratorFacts
    link: LinkFacts
    host: HostFacts
    scaled_from: str | None = None
