"""How large everything is that is measured: on a GPU, or so small that a CPU runs all of it."""

from dataclasses import dataclass

import torch
from benchmarks.gpu.cells import LargerCell, OnlineCell, PlannedCell, Shape
from benchmarks.gpu.host_device import HostDevice
from benchmarks.gpu.sizes import HostSizes, KernelSizes, TileSizes

from tandem.devices.cuda.device import compute_capability, open_cuda
from tandem.devices.cuda.probe import CudaProbe
from tandem.models.linear import dequantize, multiply_codes
from tandem.probes.effort import Effort
from tandem.probes.probe_device import ProbeDevice
from tandem.probes.torch_accelerator import CodeMaths
from tandem.spec.dtype import DType

CODE_MATHS = CodeMaths(multiply_codes, dequantize)
HYBRID = ("auto", "ride-along", "rendezvous", "neo", "apex")
PLANNED = ("auto", "gpu-only", "ride-along", "rendezvous")
OFFLINE = ("auto", "zero-inference", "flexgen", "kvpr")
_FIRST_WITH_BFLOAT16 = (8, 0)  # compute capability; a T4 is of 7.5


@dataclass(frozen=True, slots=True)
class Scale:
    """All sizes of a run.

    Attributes:
        accelerator: as the engine's flag. host_bytes: of its memory, for KV and weights.
        online_host_bytes: for KV of online cells: what a host reads in some 40 ms, several times a
            step; more would take the longer to pin.
        requests, prompt_tokens, new_tokens: of a job. rows: that run at once.
        job_s: after which a job is cut short; its rate counts up to there.
        rounds: of variants in turns, at most.
        mixtures: as `online`, of which weights take long to make: measured last.
        launch_shape: so small that launching is all that its decoding takes.
    """

    accelerator: str
    host_bytes: int
    online_host_bytes: int
    online: tuple[OnlineCell, ...]
    mixtures: tuple[OnlineCell, ...]
    larger: tuple[LargerCell, ...]
    planned: tuple[PlannedCell, ...]
    offline: tuple[PlannedCell, ...]
    kernels: KernelSizes
    tiles: TileSizes
    host: HostSizes
    effort: Effort
    launch_shape: Shape
    requests: int
    prompt_tokens: int
    new_tokens: int
    rows: int
    job_s: float
    rounds: int
    larger_tokens: int
    window_s: float

    def probed(self) -> ProbeDevice:
        """The device by itself."""
        if self.accelerator == "cuda":
            return CudaProbe(open_cuda(0))
        return HostDevice()

    @property
    def dtype(self) -> DType:
        """Of weights and activations. Asked for where it is used: the answer opens the device."""
        if self.accelerator == "cuda" and compute_capability(self.device) < _FIRST_WITH_BFLOAT16:
            return DType.FLOAT16
        return DType.BFLOAT16

    @property
    def device(self) -> torch.device:
        """Where its tensors lie."""
        return torch.device("cuda", 0) if self.accelerator == "cuda" else torch.device("cpu")
