"""The same code in a minute or two on the emulated accelerator: to see that it runs, no figures."""

from benchmarks.gpu.cells import LargerCell, OnlineCell, PlannedCell, Shape
from benchmarks.gpu.scale import HYBRID, Scale
from benchmarks.gpu.sizes import HostSizes, KernelSizes, MixtureSizes, TileSizes

from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import HeadShape, Workload
from tandem.probes.linear_cases import BFLOAT16, FLOAT16, MatrixShape, quantized_kind
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType
from tandem.spec.weight_format import WeightFormat

_MIB = 1 << 20
_ALONE = ("auto",)

_NARROW = {
    "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 256,
}  # fmt: skip
_ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_LLAMA, _QWEN = Shape("llama-3.1-8b", _NARROW), Shape("qwen3-14b", _NARROW)
_LARGE, _MIXTURE = Shape("llama-3.1-70b", _NARROW), Shape("qwen3-30b-a3b", _NARROW | _ROUTED)
_HEADS = HeadShape(4, 2, 32)

_ONLINE = (
    OnlineCell("llama-3.1-8b", _LLAMA, "none", 2_200_000, HYBRID, peer=True),
    OnlineCell("llama-3.1-8b-kv", _LLAMA, "none", 8 * _MIB, _ALONE, False, 400_000),
    OnlineCell("qwen3-14b-int4", _QWEN, "int4", 5 * _MIB, _ALONE, peer=False),
)
_MIXTURES = (OnlineCell("qwen3-30b-a3b-int4", _MIXTURE, "int4", 5 * _MIB, _ALONE, peer=False),)
_PLANNED = (PlannedCell("llama-3.1-8b", _LLAMA, 68 * _MIB, ("auto", "gpu-only"), 24, 8),)
_OFFLINE = (
    PlannedCell("llama-3.1-8b", _LLAMA, 66 * _MIB, ("auto", "kvpr"), 24, 4, 4),
    PlannedCell("llama-3.1-70b-int4", _LARGE, 66 * _MIB, _ALONE, 24, 4, 4, quantization="int4:128"),
)
_KERNELS = KernelSizes(
    shape=_LLAMA,
    decode=((2, 100),),
    prompts=(70,),
    matrices=((128, 128),),
    rows=(1, 20),
    mixtures=(MixtureSizes(4, 2, 128, 128, (1, 20)),),
    sampled=(2,),
    copies=2,
    blocks=3,
    trips=3,
    rounds=1,
)
_TILES = TileSizes(
    heads=(HeadShape(2, 1, 32),),  # Triton's interpreter takes its time for every program
    kv=(CodeType.INT4,),
    decode=((1, 40),),
    prompt=20,
    matrices=((64, 128),),
    formats=(WeightFormat(8, 128, floats=True),),
    rows=(1, 20),
    copies=1,
    blocks=2,
    block_bytes=(1 << 12, 1 << 13),
    rounds=1,
)
_HOST = HostSizes(
    heads=(HeadShape(8, 2, 64),),  # pages and copies exceed the caches: few, large ones
    loads=(Workload("A", (2048,) * 16),),
    matrices=(MatrixShape(2048, 2048),),
    kinds=(FLOAT16, quantized_kind(8, 64)),
    rows=(1,),
    rounds=1,
)
_EFFORT = Effort(
    rounds=1,
    kinds=(FLOAT16, BFLOAT16, quantized_kind(4, 64)),
    sides=(64, 128),
    rows=(1, 8),
    heads=_HEADS,
    kv=(DType.FLOAT16, DType.BFLOAT16),
    batches=(1, 2),
    contexts=(64, 128),
    memory_bytes=_MIB,
    link_bytes=(4096, _MIB),
    disk_bytes=64 * _MIB,
    trips=3,
    card_rows=(1, 8),
    prompts=(1, 2),
    prompt_tokens=(32, 64),
)


def tiny() -> Scale:
    """All of it."""
    return Scale(
        accelerator="emulated",
        host_bytes=4 * _MIB,
        online_host_bytes=4 * _MIB,
        online=_ONLINE,
        mixtures=_MIXTURES,
        larger=(LargerCell("llama-3.1-8b", _LLAMA, 1_600_000, (1,), peer=False),),
        planned=_PLANNED,
        offline=_OFFLINE,
        kernels=_KERNELS,
        tiles=_TILES,
        host=_HOST,
        effort=_EFFORT,
        launch_shape=_LLAMA,
        requests=4,
        prompt_tokens=12,
        new_tokens=4,
        rows=4,
        job_s=2.0,
        rounds=1,
        larger_tokens=3,
        window_s=0.05,
    )
