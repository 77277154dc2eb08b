"""Which engines the memory suite builds: model, context, caps and placement."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tandem.bench.host_model import LlamaShape

DEMO = "demo"

WIDE = LlamaShape("176M", 1024, 4, 16, 4, 2816, 64_000, 4096)
"""Weights outweigh the KV cache, and most are embeddings and head, so that steps are quick."""
DEEP = LlamaShape("71M", 512, 12, 8, 8, 1408, 32_000, 4096)
"""A key and a value head for every query head: the KV cache outweighs the weights."""


@dataclass(frozen=True, slots=True)
class MemoryCell:
    """One engine.

    Attributes:
        shape: of random weights; None: the demo model.
        options: of `EngineConfig`, by name.
    """

    shape: LlamaShape | None
    options: dict[str, Any]

    def __str__(self) -> str:
        model = DEMO if self.shape is None else self.shape.name
        given = (f"{name} {value}" for name, value in self.options.items() if name not in _COMMON)
        return ", ".join([model, *given])


_COMMON = {"max_num_seqs": 16, "load_format": "dummy"}
_TOKENS = 256


def all_cells() -> tuple[MemoryCell, ...]:
    """The suite."""
    return (*_host_cells(), *_emulated_cells())


def _host_cells() -> Iterator[MemoryCell]:
    for dtype, kv, context in itertools.product(
        ("bfloat16", "float32"), ("auto", "int8"), (512, 2048)
    ):
        yield _host(WIDE, "4GiB", context, dtype=dtype, kv_cache_dtype=kv)
    for quantization, context in itertools.product(("int8", "int4"), (512, 2048)):
        yield _host(WIDE, "4GiB", context, quantization=quantization)
    for dtype, cap in (("bfloat16", 330), ("bfloat16", 345), ("float32", 640), ("float32", 670)):
        yield _host(WIDE, f"{cap}MiB", 512, dtype=dtype)  # layers stay on disk
    for context, kv in ((512, "auto"), (2048, "auto"), (2048, "int4")):
        yield _host(DEEP, "4GiB", context, kv_cache_dtype=kv)
    yield _host(DEEP, "4GiB", 2048, max_num_batched_tokens=2048)
    yield _host(DEEP, "250MiB", None)  # the cap limits the context
    yield _host(None, "4GiB", None, dtype="float32")


def _emulated_cells() -> Iterator[MemoryCell]:
    for placement, context in itertools.product(("device", "split", "host"), (512, 2048)):
        yield _emulated(WIDE, "2GiB", context, kv_placement=placement)
    for way, cap, context in itertools.product(("stream", "cpu"), (325, 345), (512, 1024)):
        yield _emulated(WIDE, f"{cap}MiB", context, host_layers=way)
    for cap, context in itertools.product((325, 345), (512, 1024)):
        yield _emulated(WIDE, f"{cap}MiB", context, host_layers="mlp")
    for way, cap, host in (  # layers stay on disk beside the accelerator
        ("stream", 325, 60), ("stream", 345, 100), ("cpu", 285, 60), ("cpu", 305, 60),
    ):  # fmt: skip
        yield _emulated(WIDE, f"{cap}MiB", 512, host_layers=way, cpu_memory=f"{host}MiB")
    yield _emulated(WIDE, "2GiB", 1024, strategy="rendezvous", kv_placement="split")
    yield _emulated(WIDE, "2GiB", 1024, dtype="float32")
    for kv in ("auto", "int8"):
        yield _emulated(DEEP, "2GiB", 1024, kv_cache_dtype=kv, kv_placement="split")
    for kv, host_kv in (("auto", "int8"), ("int8", "int4"), ("float16", "float32")):
        yield _emulated(
            DEEP, "2GiB", 1024, kv_cache_dtype=kv, cpu_kv_dtype=host_kv, kv_placement="split"
        )
    yield _emulated(DEEP, "2GiB", 1024, max_num_batched_tokens=1024)
    yield _emulated(None, "2GiB", None, dtype="float32", kv_placement="split")


def _host(shape: LlamaShape | None, cap: str, context: int | None, **options: object) -> MemoryCell:
    return _cell(shape, context, {"accelerator": "none", "cpu_memory": cap, **options})


def _emulated(
    shape: LlamaShape | None, cap: str, context: int | None, **options: object
) -> MemoryCell:
    caps = {"gpu_memory": cap, "cpu_memory": "2GiB"}
    return _cell(shape, context, {"accelerator": "emulated", **caps, **options})


def _cell(shape: LlamaShape | None, context: int | None, options: dict[str, Any]) -> MemoryCell:
    if context is not None:
        options["max_model_len"] = context
    common = _COMMON if shape is not None else {**_COMMON, "load_format": "auto"}
    return MemoryCell(shape, {"max_num_batched_tokens": _TOKENS, **options, **common})
