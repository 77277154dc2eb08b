"""What KVPR's machine is described by: its link, its accelerator, and a layer's KV cache."""

from tandem.bench.papers.models import MODELS
from tandem.cost.from_model import kv_fetch
from tandem.cost.kvpr.recompute import KVFetch
from tandem.spec.dtype import DType

PAPER = "kvpr"
ELEMENT_BYTES = 2
LINK_BYTES_PER_S = 32e9  # sections 1 and 4: PCIe 4.0 x16
MEMORY_BYTES_PER_S = 1555e9  # NVIDIA's data sheet of the A100 40 GB
PEAK_FLOPS_PER_S = 312e12  # as above: FP16 tensor cores, dense
# Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
# Megatron-LM" (arXiv 2104.04473), table 1: 142 TFLOP/s per A100 at hidden size 4096.
GPU_EFFICIENCY = 142 / 312
EFFICIENCIES = (0.3, 0.4, 0.6, 0.8, 1.0)


def fetch_of(model: str, rows: int, context: int) -> KVFetch:
    """One layer's KV cache in FP16."""
    return kv_fetch(MODELS[model], rows, context, DType.FLOAT16)
