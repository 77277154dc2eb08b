"""LM-Offload's machine and blocks by their data sheets, and how a factor is calibrated."""

import math
from collections.abc import Callable

from tandem.bench.papers.kvpr import GPU_EFFICIENCY, MEMORY_BYTES_PER_S, PEAK_FLOPS_PER_S
from tandem.bench.papers.models import MODELS
from tandem.cost.from_model import offload_workload
from tandem.cost.lm_offload.quantization import memory_bound_rates
from tandem.cost.lm_offload.tasks import OffloadRates
from tandem.cost.lm_offload.workload import OffloadWorkload
from tandem.cost.rates import DeviceRates

PROMPT = 64
GPU_BATCH = 64  # section 3.1
LINK_BYTES_PER_S = 32e9  # table 4: 64 GB/s in both directions together
CPU_BYTES_PER_S = 2 * 8 * 2933e6 * 8  # Intel's data sheet: 8 channels of DDR4-2933 per socket
CPU_FLOPS_PER_S = 56 * 2.0e9 * 64  # as above: 2.0 GHz, two AVX-512 FMA units, float32


def workload_of(model: str, generate: int, rows: int) -> OffloadWorkload:
    """A block of table 3 or figure 3."""
    batches = math.ceil(rows / GPU_BATCH)
    return offload_workload(
        MODELS[model], prompt=PROMPT, generate=generate, rows=rows, batches=batches
    )


def rates_of(link_share: float, host_share: float) -> OffloadRates:
    """The machine of table 4 by its data sheets; the shares are what is reached of them."""
    quant = memory_bound_rates(4, MEMORY_BYTES_PER_S)
    link = link_share * LINK_BYTES_PER_S
    return OffloadRates(
        link,
        link,
        DeviceRates(MEMORY_BYTES_PER_S, GPU_EFFICIENCY * PEAK_FLOPS_PER_S, 0.0),
        DeviceRates(host_share * CPU_BYTES_PER_S, CPU_FLOPS_PER_S, 0.0),
        quant,
        memory_bound_rates(4, CPU_BYTES_PER_S),
    )


def solve_factor(predict: Callable[[float], float], published: float) -> float:
    """The factor between 1e-4 and 1 at which a rising prediction meets what was published."""
    low, high = 1e-4, 1.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if predict(middle) < published else (low, middle)
    return math.sqrt(low * high)
