"""The compiled kernels on the machine's own processor: errors by each of its instruction sets,
rates by the best.

Machines of development have two cores: many cores, and AMX, are seen here first.
"""

import os
from collections.abc import Iterator

import torch
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.sizes import HostSizes
from torch import Tensor

from tandem.bench.kernels import KernelBench, run_kernels
from tandem.bench.linear import LinearBench, run_linear
from tandem.bench.records import BenchRow
from tandem.kernels import native
from tandem.kernels.attention import AttentionBatch, paged_attention
from tandem.kernels.native_attention import NativeBatch
from tandem.kernels.native_attention import paged_attention as native_attention
from tandem.kernels.native_linear import linear
from tandem.kernels.native_pool import NativePool, usable_threads
from tandem.kernels.pages import PageShape
from tandem.probes.kernel_cases import HeadShape, Workload, make_layers
from tandem.probes.kernel_pages import code_pages, code_shape, float_pages
from tandem.probes.linear_cases import FLOAT16, Copies, MatrixShape, WeightKind, make_copies
from tandem.probes.walked_memory import WalkedMemory
from tandem.spec.kv_type import CodeType

_DTYPES = torch.float16, torch.bfloat16, torch.float32
_UNEVEN = Workload("uneven", (1, 63, 64, 65, 700))
_ODD_HEADS = HeadShape(7, 1, 72), HeadShape(8, 2, 128)  # four queries of a head and three beside
_ODD_MATRIX = MatrixShape(90, 384)
_ROWS = 1, 2, 5, 40  # strips, tiles, panels
_AMX = "amx"
_LARGEST_ERROR = 1e-4  # of sums in float32 of numbers around 1


def measure_host(scale: Scale, limit: Deadline, found: Findings) -> None:
    """Errors of every instruction set, then attention and linear maps beside their limits.

    Raises:
        ConfigError: there are no compiled kernels.
    """
    native.choose_isa()
    for isa in native.supported_isas():
        found.add(*_errors(NativePool(isa=isa), scale.host.kinds))
    _attend(scale.host, limit, found)
    _multiply(scale.host, limit, found)


def measure_host_amx(scale: Scale, limit: Deadline, found: Findings) -> None:
    """Attention and linear maps by the kernels for AMX, which are never chosen by themselves; noted
    where the processor has none.

    Raises:
        ConfigError: there are no compiled kernels.
    """
    native.choose_isa()
    if _AMX not in native.supported_isas():
        found.note(f"this processor has no AMX, but {', '.join(native.supported_isas())}")
        return
    os.environ[native.ISA_VARIABLE] = _AMX  # of this process, which measures nothing else
    try:
        native.choose_isa()
        _attend(scale.host, limit, found)
        _multiply(scale.host, limit, found)
    finally:
        del os.environ[native.ISA_VARIABLE]


def _attend(sizes: HostSizes, limit: Deadline, found: Findings) -> None:
    for heads in sizes.heads:
        if not limit.left_s:
            found.note(f"attention of {heads} was left out: no time left")
            continue
        threads = tuple(sorted({1, usable_threads()}))
        codes = tuple(CodeType) if heads == sizes.heads[0] else ()
        config = KernelBench((heads,), sizes.loads, _DTYPES, codes, threads, sizes.rounds)
        found.add(*run_kernels(config, print))


def _multiply(sizes: HostSizes, limit: Deadline, found: Findings) -> None:
    for shape in sizes.matrices:
        for kind in sizes.kinds if shape == sizes.matrices[0] else (FLOAT16,):
            if not limit.left_s:
                found.note(f"{kind} weights of {shape} were left out: no time left")
                continue
            config = LinearBench((shape,), (kind,), sizes.rows, (usable_threads(),), sizes.rounds)
            found.add(*run_linear(config, print))


# --- errors ---------------------------------------------------------------------------------------


def _errors(pool: NativePool, kinds: tuple[WeightKind, ...]) -> Iterator[BenchRow]:
    torch.manual_seed(0)
    for heads in _ODD_HEADS:
        for dtype in _DTYPES:
            pages = float_pages(heads, _UNEVEN.num_blocks, dtype)
            name = str(dtype).removeprefix("torch.")
            yield _attention_error(pool, heads, pages, heads.pages, name)
        for kv in CodeType:
            pages = code_pages(heads, _UNEVEN.num_blocks, kv)
            yield _attention_error(pool, heads, pages, code_shape(heads, kv), str(kv))
    for kind in kinds:
        copies = make_copies(_ODD_MATRIX, kind, WalkedMemory(0))
        for rows in _ROWS:
            yield from _linear_errors(pool, copies, rows)


def _attention_error(
    pool: NativePool, heads: HeadShape, pages: Tensor, own: PageShape, kv: str
) -> BenchRow:
    """Beside the torch kernels."""
    (case,) = make_layers(heads, _UNEVEN, len(pages), torch.float32)
    plan = NativeBatch.from_binding(case.attention, own, heads.heads, pool.num_threads)
    batch = AttentionBatch.from_binding(case.attention, torch.device("cpu"), own)
    ours = native_attention(pool, case.query, pages, plan, heads.scale)
    theirs = paged_attention(case.query, pages, batch, heads.scale)
    error = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    return BenchRow(f"decode {heads} {kv}", pool.isa, "largest error", error, "", _LARGEST_ERROR)


def _linear_errors(pool: NativePool, copies: Copies, rows: int) -> Iterator[BenchRow]:
    """Beside float64; with activations rounded to int8, over what rounding allows."""
    weight, x = copies.native()[0], torch.randn(rows, _ODD_MATRIX.inputs)
    values = copies.quantized[0].dequantize() if copies.quantized else copies.tensors[0]
    exact = x.double() @ values.double().t()
    case = f"linear {_ODD_MATRIX} {copies.kind} {rows} rows"
    error = float((linear(pool, weight, x) - exact).abs().max())
    yield BenchRow(case, pool.isa, "largest error", error, "", _LARGEST_ERROR)
    if copies.kind.format is None or not copies.kind.rounds_activations:
        return
    groups = (-1, copies.kind.format.group)
    half_steps = x.double().unflatten(1, groups).abs().amax(2) / 254
    allowed = half_steps @ values.double().abs().unflatten(1, groups).sum(2).t() + _LARGEST_ERROR
    rounded = (linear(pool, weight, x, int8_activations=True) - exact).abs()
    metric = "largest error, int8 activations, of what rounding allows"
    yield BenchRow(case, pool.isa, metric, float((rounded / allowed).max()), "", 1.0)
