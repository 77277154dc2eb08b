"""How large everything is that is measured: on a GPU, or so small that a CPU runs all of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.host_device import HostDevice

from tandem.devices.cuda.device import open_cuda
from tandem.devices.cuda.probe import CudaProbe
from tandem.models.catalogue import known_models
from tandem.models.config import read_model_spec
from tandem.models.linear import dequantize, multiply_codes
from tandem.probes.effort import Effort, coarse
from tandem.probes.kernel_cases import HeadShape, Workload, workloads
from tandem.probes.linear_cases import (
    BFLOAT16,
    FLOAT16,
    MatrixShape,
    WeightKind,
    quantized_kind,
)
from tandem.probes.torch_accelerator import CodeMaths, ProbeDevice
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat
from tandem.spec.model import ModelSpec
from tandem.spec.weight_format import WeightFormat

_GIB, _MIB = 1 << 30, 1 << 20
CODE_MATHS = CodeMaths(multiply_codes, dequantize)


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of the catalogue, all of its layers or cut down in every direction.

    Attributes:
        name: in the catalogue.
        changes: of its `config.json`.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def write(self, directory: Path, dtype: DType) -> ModelSpec:
        """Write `config.json`, without an end of sequence, so that every run has its length."""
        known = next(model for model in known_models() if model.name == self.name)
        values = {key: value for key, value in known.config.values.items() if "eos" not in key}
        values |= {**self.changes, "torch_dtype": dtype.value, "eos_token_id": None}
        values["model_type"] = known.config.path.stem  # which transformers knows a family by
        (directory / "config.json").write_text(json.dumps(values), encoding="utf-8")
        return read_model_spec(directory)


@dataclass(frozen=True, slots=True)
class OnlineCell:
    """A model in some memory.

    Attributes:
        quantization: as the engine's flag. memory_bytes: of the accelerator, that may be used.
        policies: strategies beside `gpu-only`. peer: whether transformers runs it too.
        kv_bytes: of it, for KV alone, where that alone is capped; 0: it is not.
    """

    name: str
    shape: Shape
    quantization: str
    memory_bytes: int
    policies: tuple[str, ...]
    peer: bool
    kv_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LargerCell:
    """A model whose weights are larger than the memory that may be used.

    Attributes:
        peer: whether accelerate runs it too, with the rest in host memory.
    """

    name: str
    shape: Shape
    memory_bytes: int
    batches: tuple[int, ...]
    peer: bool


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A model in some memory, whose plans are predicted and executed.

    Attributes:
        prompt_tokens, new_tokens: means of the workload. requests: of an offline job.
        host_bytes: of the host's memory; 0: the scale's. peer: whether transformers runs it too,
            with weights and cache that do not fit in host memory.
        quantization: as the engine's flag, with a group's size.
    """

    name: str
    shape: Shape
    memory_bytes: int
    policies: tuple[str, ...]
    prompt_tokens: int
    new_tokens: int
    requests: int = 0
    host_bytes: int = 0
    peer: bool = False
    quantization: str = "none"


@dataclass(frozen=True, slots=True)
class MixtureSizes:
    """A layer's experts, of which each token goes to some.

    Attributes:
        rows: tokens, up to a step full of prompts: with many for each expert weights are read more
            than once, and experts in turn may be faster.
    """

    count: int
    per_token: int
    hidden: int
    inner: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelSizes:
    """What kernels work on.

    Attributes:
        decode: (rows, keys of each). prompts: tokens of one. matrices: (outputs, inputs).
        rows: of activations. copies: of a weight, more than the caches hold together.
        sampled: rows that tokens are drawn for.
    """

    shape: Shape
    decode: tuple[tuple[int, int], ...]
    prompts: tuple[int, ...]
    matrices: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    mixtures: tuple[MixtureSizes, ...]
    sampled: tuple[int, ...]
    copies: int
    blocks: int
    trips: int
    rounds: int


@dataclass(frozen=True, slots=True)
class TileSizes:
    """What kernels work on while they are cut otherwise.

    Attributes:
        heads: of models. kv: kinds beside 16 bits. decode: (rows, keys of each). prompt: tokens of
            one.
        matrices: (outputs, inputs). rows: of activations. copies: of a weight.
        blocks: that are copied, of each of `block_bytes`, ascending.
    """

    heads: tuple[HeadShape, ...]
    kv: tuple[KVType, ...]
    decode: tuple[tuple[int, int], ...]
    prompt: int
    matrices: tuple[tuple[int, int], ...]
    formats: tuple[WeightFormat, ...]
    rows: tuple[int, ...]
    copies: int
    blocks: int
    block_bytes: tuple[int, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class HostSizes:
    """What the compiled kernels work on, on the machine's own processor.

    Attributes:
        heads: of attention; the first with KV of every type. loads: of decode.
        matrices: the first with weights of every kind, the others of float16. rows: of activations.
        rounds: samples of each variant.
    """

    heads: tuple[HeadShape, ...]
    loads: tuple[Workload, ...]
    matrices: tuple[MatrixShape, ...]
    kinds: tuple[WeightKind, ...]
    rows: tuple[int, ...]
    rounds: int


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
    dtype: DType
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
    def device(self) -> torch.device:
        """Where its tensors lie."""
        return torch.device("cuda", 0) if self.accelerator == "cuda" else torch.device("cpu")


HYBRID = ("auto", "ride-along", "rendezvous", "neo", "apex")
PLANNED = ("auto", "gpu-only", "ride-along", "rendezvous")
OFFLINE = ("auto", "zero-inference", "flexgen", "kvpr")


def full() -> Scale:
    """The issue's cells. An H100 or H200 with its memory capped is no small card: it is a stress of
    launches and signalling.
    """
    names = "llama-2-7b", "llama-3.1-8b", "qwen3-14b", "qwen3-30b-a3b"
    llama2, llama3, qwen3, mixture = map(Shape, names)
    online = [
        OnlineCell(f"{shape.name}-{gib}gib", shape, "none", gib * _GIB, policies, peer=True)
        # 16 GiB first: beside the weights is room for few rows' KV, so that the host may help most
        for gib, policies in ((16, HYBRID), (32, ("auto",)), (24, HYBRID))
        for shape in (llama3, llama2)
    ]
    online[1:1] = [
        OnlineCell("llama-3.1-8b-kv-1gib", llama3, "none", 48 * _GIB, HYBRID, True, _GIB),
        OnlineCell("llama-2-7b-kv-2gib", llama2, "none", 48 * _GIB, HYBRID, True, 2 * _GIB),
    ]
    # Weights of int4 have no peer: what transformers packs and multiplies them by is not installed
    # on a machine without a network, and in 16 bits they are other bytes, or do not fit at all.
    online += [
        OnlineCell("llama-3.1-8b-int4-16gib", llama3, "int4", 16 * _GIB, HYBRID, peer=False),
        OnlineCell("qwen3-14b-int4-16gib", qwen3, "int4", 16 * _GIB, HYBRID, peer=False),
        OnlineCell("qwen3-14b-int4-24gib", qwen3, "int4", 24 * _GIB, HYBRID, peer=False),
        OnlineCell("qwen3-14b-32gib", qwen3, "none", 32 * _GIB, HYBRID, peer=True),
        OnlineCell("llama-2-7b-int4-16gib", llama2, "int4", 16 * _GIB, HYBRID, peer=False),
    ]
    narrow = {
        "hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128,
        "intermediate_size": 512, "vocab_size": 1024,
    }  # fmt: skip
    return Scale(
        accelerator="cuda",
        host_bytes=24 * _GIB,
        online_host_bytes=8 * _GIB,
        online=tuple(online),
        mixtures=(
            OnlineCell(
                f"{mixture.name}-int4-24gib", mixture, "int4", 24 * _GIB, ("auto",), peer=False
            ),
        ),
        larger=(
            LargerCell("llama-3.1-8b-8gib", llama3, 8 * _GIB, (1, 32), peer=True),
            LargerCell("qwen3-14b-16gib", qwen3, 16 * _GIB, (1, 32), peer=True),
        ),
        planned=(
            PlannedCell("llama-3.1-8b-16gib", llama3, 16 * _GIB, PLANNED, 512, 256),
            PlannedCell("llama-2-7b-16gib", llama2, 16 * _GIB, PLANNED, 256, 256),
        ),
        offline=(
            PlannedCell("llama-3.1-8b-8gib", llama3, 8 * _GIB, OFFLINE, 256, 32, 256, peer=True),
            PlannedCell("llama-2-7b-16gib", llama2, 16 * _GIB, OFFLINE, 512, 64, requests=256),
            *(
                # lengths of FlexGen's; the host has room for all weights and all KV
                PlannedCell(
                    f"{name}-{gib}gib",
                    Shape(name),
                    gib * _GIB,
                    OFFLINE,
                    512,
                    32,
                    requests,
                    host_gib * _GIB,
                    peer,
                )
                for name, gib, requests, host_gib, peer in (
                    ("opt-6.7b", 8, 128, 56, True),
                    ("opt-13b", 16, 64, 64, False),
                    ("opt-30b", 16, 32, 96, False),
                )
            ),
            PlannedCell(
                "llama-3.1-70b-int4-16gib",
                Shape("llama-3.1-70b"),
                16 * _GIB,
                OFFLINE[:3],
                512,
                32,
                requests=64,
                host_bytes=96 * _GIB,
                quantization="int4:128",
            ),
        ),
        kernels=KernelSizes(
            shape=llama3,
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
        ),
        tiles=TileSizes(
            heads=tuple(HeadShape(*sizes) for sizes in ((32, 8, 128), (32, 32, 128), (40, 8, 128))),
            kv=(NarrowFloat.FP8, CodeType.INT8, CodeType.INT4),
            decode=((32, 2048),),
            prompt=2048,
            matrices=((28_672, 4096), (4096, 11_008), (34_816, 5120)),
            formats=(
                WeightFormat(8, 128),
                WeightFormat(4, 128),
                WeightFormat(8, 128, floats=True),
            ),
            rows=(1, 64, 128),
            copies=4,
            blocks=64,
            block_bytes=tuple(1 << bits for bits in range(15, 23)),
            rounds=5,
        ),
        host=HostSizes(
            heads=tuple(HeadShape(*sizes) for sizes in ((32, 8, 128), (32, 32, 128), (64, 8, 128))),
            loads=workloads(),
            matrices=tuple(MatrixShape(n, 4096) for n in (14_336, 4096)),
            kinds=(FLOAT16, BFLOAT16, quantized_kind(8, 128), quantized_kind(4, 64)),
            rows=(1, 4, 32, 128, 512),
            rounds=5,
        ),
        effort=coarse(),
        launch_shape=Shape("llama-3.1-8b", narrow),
        dtype=DType.BFLOAT16,
        requests=256,
        prompt_tokens=256,
        new_tokens=192,
        rows=128,
        job_s=8.0,
        rounds=3,
        larger_tokens=12,
        window_s=6.0,
    )


def tiny() -> Scale:
    """The same code in seconds on the emulated accelerator: to see that it runs, no figures."""
    narrow: dict[str, Any] = {
        "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 256,
    }  # fmt: skip
    llama, qwen = Shape("llama-3.1-8b", narrow), Shape("qwen3-14b", narrow)
    routed = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    mixture = Shape("qwen3-30b-a3b", narrow | routed)
    heads = HeadShape(4, 2, 32)
    return Scale(
        accelerator="emulated",
        host_bytes=4 * _MIB,
        online_host_bytes=4 * _MIB,
        online=(
            OnlineCell("llama-3.1-8b", llama, "none", 2_200_000, HYBRID, peer=True),
            OnlineCell("llama-3.1-8b-kv", llama, "none", 8 * _MIB, ("auto",), False, 400_000),
            OnlineCell("qwen3-14b-int4", qwen, "int4", 5 * _MIB, ("auto",), peer=False),
        ),
        mixtures=(
            OnlineCell("qwen3-30b-a3b-int4", mixture, "int4", 5 * _MIB, ("auto",), peer=False),
        ),
        larger=(LargerCell("llama-3.1-8b", llama, 1_600_000, (1,), peer=False),),
        planned=(PlannedCell("llama-3.1-8b", llama, 68 * _MIB, ("auto", "gpu-only"), 24, 8),),
        offline=(
            PlannedCell("llama-3.1-8b", llama, 66 * _MIB, ("auto", "kvpr"), 24, 4, requests=4),
            PlannedCell(
                "llama-3.1-70b-int4",
                Shape("llama-3.1-70b", narrow),
                66 * _MIB,
                ("auto",),
                24,
                4,
                requests=4,
                quantization="int4:128",
            ),
        ),
        kernels=KernelSizes(
            shape=llama,
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
        ),
        tiles=TileSizes(
            heads=(heads,),
            kv=(CodeType.INT4,),
            decode=((2, 40),),
            prompt=20,
            matrices=((64, 128),),
            formats=(WeightFormat(8, 128, floats=True),),
            rows=(1, 20),
            copies=1,
            blocks=2,
            block_bytes=(1 << 12, 1 << 13),
            rounds=1,
        ),
        host=HostSizes(
            heads=(HeadShape(8, 2, 64),),  # pages and copies exceed the caches: few, large ones
            loads=(Workload("A", (2048,) * 16),),
            matrices=(MatrixShape(2048, 2048),),
            kinds=(FLOAT16, quantized_kind(8, 64)),
            rows=(1,),
            rounds=1,
        ),
        effort=Effort(
            rounds=1,
            kinds=(FLOAT16, quantized_kind(4, 64)),
            sides=(64, 128),
            rows=(1, 8),
            heads=heads,
            kv=(DType.FLOAT16,),
            batches=(1, 2),
            contexts=(64, 128),
            memory_bytes=_MIB,
            link_bytes=(4096, _MIB),
            disk_bytes=64 * _MIB,
            trips=3,
            card_rows=(1, 8),
            prompts=(1, 2),
            prompt_tokens=(32, 64),
        ),
        launch_shape=llama,
        dtype=DType.BFLOAT16,
        requests=4,
        prompt_tokens=12,
        new_tokens=4,
        rows=4,
        job_s=2.0,
        rounds=1,
        larger_tokens=3,
        window_s=0.05,
    )
