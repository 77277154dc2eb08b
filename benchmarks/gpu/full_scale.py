"""What a GPU measures. One with its memory capped is no small card: it is a stress of launches and
signalling.
"""

from benchmarks.gpu.cells import LargerCell, OnlineCell, PlannedCell, Shape
from benchmarks.gpu.scale import HYBRID, OFFLINE, PLANNED, Scale
from benchmarks.gpu.sizes import HostSizes, KernelSizes, MixtureSizes, TileSizes

from tandem.probes.effort import coarse
from tandem.probes.kernel_cases import HeadShape, workloads
from tandem.probes.linear_cases import BFLOAT16, FLOAT16, MatrixShape, quantized_kind
from tandem.spec.kv_type import CodeType, NarrowFloat
from tandem.spec.weight_format import WeightFormat

_GIB = 1 << 30
_ALONE = ("auto",)

_LLAMA2, _LLAMA3 = Shape("llama-2-7b"), Shape("llama-3.1-8b")
_QWEN3, _MIXTURE = Shape("qwen3-14b"), Shape("qwen3-30b-a3b")
_NARROW = Shape(
    "llama-3.1-8b",
    {
        "hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128,
        "intermediate_size": 512, "vocab_size": 1024,
    },
)  # fmt: skip

# What has a target first; at 16 GiB few rows' KV has room beside the weights, so that the host may
# help most. Of int4 there is no peer: what transformers packs such weights for is not installed on
# a machine without a network, and in 16 bits they are other bytes, or do not fit at all.
_ONLINE = (
    OnlineCell("llama-3.1-8b-16gib", _LLAMA3, "none", 16 * _GIB, HYBRID, peer=True),
    OnlineCell("llama-3.1-8b-kv-1gib", _LLAMA3, "none", 48 * _GIB, HYBRID, True, _GIB),
    OnlineCell("llama-2-7b-kv-2gib", _LLAMA2, "none", 48 * _GIB, HYBRID, True, 2 * _GIB),
    OnlineCell("llama-2-7b-16gib", _LLAMA2, "none", 16 * _GIB, HYBRID, peer=True),
    OnlineCell("llama-3.1-8b-32gib", _LLAMA3, "none", 32 * _GIB, _ALONE, peer=True),
    OnlineCell("llama-2-7b-32gib", _LLAMA2, "none", 32 * _GIB, _ALONE, peer=True),
    OnlineCell("llama-3.1-8b-24gib", _LLAMA3, "none", 24 * _GIB, HYBRID, peer=True),
    OnlineCell("llama-2-7b-24gib", _LLAMA2, "none", 24 * _GIB, HYBRID, peer=True),
    OnlineCell("llama-3.1-8b-int4-16gib", _LLAMA3, "int4", 16 * _GIB, HYBRID, peer=False),
    OnlineCell("qwen3-14b-int4-16gib", _QWEN3, "int4", 16 * _GIB, HYBRID, peer=False),
    OnlineCell("qwen3-14b-int4-24gib", _QWEN3, "int4", 24 * _GIB, HYBRID, peer=False),
    OnlineCell("qwen3-14b-32gib", _QWEN3, "none", 32 * _GIB, HYBRID, peer=True),
    OnlineCell("llama-2-7b-int4-16gib", _LLAMA2, "int4", 16 * _GIB, HYBRID, peer=False),
    OnlineCell("qwen3-14b-kv-2gib", _QWEN3, "none", 40 * _GIB, _ALONE, False, 2 * _GIB),
    OnlineCell("llama-3.1-8b-int4-kv-1gib", _LLAMA3, "int4", 24 * _GIB, _ALONE, False, _GIB),
    OnlineCell("llama-3.1-8b-int4-24gib", _LLAMA3, "int4", 24 * _GIB, _ALONE, peer=False),
    OnlineCell("llama-2-7b-int4-24gib", _LLAMA2, "int4", 24 * _GIB, _ALONE, peer=False),
)
_MIXTURES = (
    OnlineCell("qwen3-30b-a3b-int4-24gib", _MIXTURE, "int4", 24 * _GIB, _ALONE, peer=False),
)
_LARGER = (
    LargerCell("llama-3.1-8b-8gib", _LLAMA3, 8 * _GIB, (1, 32), peer=True),
    LargerCell("qwen3-14b-16gib", _QWEN3, 16 * _GIB, (1, 32), peer=True),
)
_PLANNED = (
    PlannedCell("llama-3.1-8b-16gib", _LLAMA3, 16 * _GIB, PLANNED, 512, 256),
    PlannedCell("llama-2-7b-16gib", _LLAMA2, 16 * _GIB, PLANNED, 256, 256),
)


def _opt(size: str, gib: int, requests: int, host_gib: int, *, peer: bool = False) -> PlannedCell:
    """Lengths of FlexGen's; the host has room for all weights and all KV."""
    shape, memory, host = Shape(f"opt-{size}"), gib * _GIB, host_gib * _GIB
    return PlannedCell(
        f"opt-{size}-{gib}gib", shape, memory, OFFLINE, 512, 32, requests, host, peer
    )


_OFFLINE = (
    PlannedCell("llama-3.1-8b-8gib", _LLAMA3, 8 * _GIB, OFFLINE, 256, 32, 256, peer=True),
    PlannedCell("llama-2-7b-16gib", _LLAMA2, 16 * _GIB, OFFLINE, 512, 64, 256),
    _opt("6.7b", 8, 128, 56, peer=True),
    _opt("13b", 16, 64, 64),
    _opt("30b", 16, 32, 96),
    PlannedCell(
        "llama-3.1-70b-int4-16gib", Shape("llama-3.1-70b"), 16 * _GIB, OFFLINE[:3], 512, 32, 64,
        96 * _GIB, quantization="int4:128",
    ),
)  # fmt: skip

_HEADS = (HeadShape(32, 8, 128), HeadShape(32, 32, 128))
_KERNELS = KernelSizes(
    shape=_LLAMA3,
    decode=((1, 32_768), (16, 8192), (64, 2048)),
    prompts=(512, 2048, 8192),
    matrices=((14_336, 4096), (4096, 14_336), (6144, 4096)),
    rows=(1, 4, 16, 32, 64, 128, 512),
    mixtures=(
        MixtureSizes(128, 8, 2048, 768, (1, 4, 16, 64, 512, 2048)),  # Qwen3-30B-A3B's
        MixtureSizes(8, 2, 4096, 14_336, (1, 16, 128, 2048)),  # Mixtral-8x7B's
    ),
    sampled=(1, 32, 128),
    copies=8,
    blocks=512,
    trips=1000,
    rounds=7,
)
_TILES = TileSizes(
    heads=(*_HEADS, HeadShape(40, 8, 128)),
    kv=(NarrowFloat.FP8, CodeType.INT8, CodeType.INT4),
    decode=((32, 2048),),
    prompt=2048,
    matrices=((28_672, 4096), (4096, 11_008), (34_816, 5120)),
    formats=(WeightFormat(8, 128), WeightFormat(4, 128), WeightFormat(8, 128, floats=True)),
    rows=(1, 64, 128),
    copies=4,
    blocks=64,
    block_bytes=tuple(1 << bits for bits in range(15, 23)),
    rounds=5,
)


def full() -> Scale:
    """All of it."""
    return Scale(
        accelerator="cuda",
        host_bytes=24 * _GIB,
        online_host_bytes=8 * _GIB,
        online=_ONLINE,
        mixtures=_MIXTURES,
        larger=_LARGER,
        planned=_PLANNED,
        offline=_OFFLINE,
        kernels=_KERNELS,
        tiles=_TILES,
        host=HostSizes(
            heads=(*_HEADS, HeadShape(64, 8, 128)),
            loads=workloads(),
            matrices=tuple(MatrixShape(n, 4096) for n in (14_336, 4096)),
            kinds=(FLOAT16, BFLOAT16, quantized_kind(8, 128), quantized_kind(4, 64)),
            rows=(1, 4, 32, 128, 512),
            rounds=5,
        ),
        effort=coarse(),
        launch_shape=_NARROW,
        requests=256,
        prompt_tokens=256,
        new_tokens=192,
        rows=128,
        job_s=8.0,
        rounds=3,
        larger_tokens=12,
        window_s=6.0,
    )
