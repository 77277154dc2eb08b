"""Triton kernels on a CUDA device: attention and products against float64, appends as the host's.

Tests are small: each has a process of its own where kernels are compiled for the first time.
"""

import time
import unittest
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from tests.gpu.exact_attention import exact_attention

from tandem.devices.cuda.graphs import CudaGraphs
from tandem.devices.cuda.memory import as_seen_by, pinned_bytes
from tandem.kernels import native, triton_support
from tandem.kernels.narrow_floats import encode
from tandem.kernels.pages import PageShape
from tandem.kernels.quantized_pages import pair_rows
from tandem.kernels.tier_kernels import ReferenceKernels
from tandem.models.weight_layout import Affine
from tandem.plan.binding import TierAttention
from tandem.quant.quantize import quantize
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.quant.scaled_floats import ScaledFloats
from tandem.spec.weight_format import WeightFormat

_HEADS, _KV_HEADS, _DIM, _BLOCK = 8, 2, 128, 64
# (context, queries): decode of short and long rows, then prompts and a chunk
_ROWS = ((1, 1), (64, 1), (700, 1), (9000, 1), (130, 130), (2000, 300))
_TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
_HOST = torch.device("cpu")


def _lane() -> TierAttention:
    blocks = [-(-context // _BLOCK) for context, _ in _ROWS]
    ids = np.random.default_rng(0).permutation(sum(blocks)).astype(np.int32)
    table = np.zeros((len(_ROWS), max(blocks)), dtype=np.int32)
    for row, own in enumerate(np.split(ids, np.cumsum(blocks)[:-1])):
        table[row, : len(own)] = own
    return TierAttention(
        token_index=None,
        query_start=np.cumsum([0, *(queries for _, queries in _ROWS)]).astype(np.int32),
        num_decode=sum(queries == 1 for _, queries in _ROWS),
        positions=np.array([p for c, q in _ROWS for p in range(c - q, c)], dtype=np.int32),
        block_table=table,
        block_index=None,
    )


def _pages(shape: PageShape, dtype: torch.dtype, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if not shape.code_bits:
        wide = (count, 2, _KV_HEADS, _BLOCK, _DIM)
        values = torch.randn(wide, generator=generator)
        return encode(values) if dtype is torch.uint8 else values.to(dtype)
    size = (count, shape.quantized.page_bytes)
    pages = torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)
    pairs = pair_rows(pages, shape.quantized)
    pairs[..., 0], pairs[..., 1] = 0.01, -1.0
    return pages


def _check(
    dtype: torch.dtype,
    bits: int = 0,
    window: int = 0,
    soft_cap: float = 0.0,
    held: torch.dtype | None = None,
) -> None:
    if not triton_support.available():
        raise unittest.SkipTest("Triton is not installed")
    from tandem.kernels.triton_kernels import TritonKernels

    device = torch.device("cuda")
    unit = triton_support.unit_of(device)
    assert unit is not None
    shape, lane = PageShape(_KV_HEADS, _BLOCK, _DIM, bits), _lane()
    pages = _pages(shape, held or dtype, int(lane.block_table.max()) + 1)
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(len(lane.positions), _HEADS, _DIM, generator=generator).to(dtype)
    kernels = TritonKernels(device, _HEADS, shape, _DIM**-0.5, soft_cap, unit, dtype)
    found = kernels.attend(query.to(device), pages.to(device), kernels.plan(lane, window))
    expected = exact_attention(
        query, pages, lane, shape, _DIM**-0.5, window=window, soft_cap=soft_cap
    )
    limit = _TOLERANCE[dtype]
    for ours, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), exact, atol=limit, rtol=limit)


def test_float32() -> None:
    _check(torch.float32)


def test_float16() -> None:
    _check(torch.float16)


def test_bfloat16() -> None:
    _check(torch.bfloat16)
    _check(torch.bfloat16, window=500)


def test_pages_of_eight_bits() -> None:
    _check(torch.float32, 8)
    _check(torch.bfloat16, 8)
    _check(torch.bfloat16, 8, window=500)


def test_pages_of_four_bits() -> None:
    _check(torch.float32, 4)
    _check(torch.bfloat16, 4)
    _check(torch.bfloat16, 4, window=500)


def test_pages_of_one_byte_floats() -> None:
    _check(torch.float32, held=torch.uint8)
    _check(torch.float16, held=torch.uint8)


def test_windows() -> None:
    _check(torch.float32, window=500)


def test_soft_caps() -> None:
    _check(torch.float32, soft_cap=5.0)


def test_appended_bytes_are_the_host_s() -> None:
    if not triton_support.available():
        raise unittest.SkipTest("Triton is not installed")
    from tandem.kernels.triton_kernels import TritonKernels

    device, unit = torch.device("cuda"), triton_support.TritonDevice(1, has_dot=True)
    k, v = torch.randn(2, 40, _KV_HEADS, _DIM, generator=torch.Generator().manual_seed(2)).unbind(0)
    slots = torch.from_numpy(np.random.default_rng(1).permutation(4 * _BLOCK)[:40])
    for held, bits in ((torch.bfloat16, 0), (torch.uint8, 0), (torch.uint8, 8), (torch.uint8, 4)):
        shape = PageShape(_KV_HEADS, _BLOCK, _DIM, bits)
        pages = _pages(shape, held, 4)
        ours = pages.to(device)
        kernels = TritonKernels(device, _KV_HEADS, shape, 1.0, 0.0, unit, torch.float32)
        kernels.append(ours, k.to(device), v.to(device), slots.to(device))
        reference = ReferenceKernels(_HOST, shape, 1.0)
        reference.append(pages, k, v, reference.plan_append(slots))
        assert torch.equal(ours.cpu(), pages), (held, bits)


def test_weights_of_four_bits() -> None:
    _check_weights(WeightFormat(4, 128))


def test_weights_of_eight_bits() -> None:
    _check_weights(WeightFormat(8, 32))


def test_weights_of_one_byte_floats() -> None:
    _check_weights(WeightFormat(8, 128, floats=True))


def _check_weights(format: WeightFormat) -> None:
    if not triton_support.available():
        raise unittest.SkipTest("Triton is not installed")
    from tandem.kernels.triton_products import dequantize, multiply

    device = torch.device("cuda")
    unit = triton_support.unit_of(device)
    assert unit is not None
    generator = torch.Generator().manual_seed(3)
    weight = _quantized(torch.randn(1000, 2048, generator=generator), format)
    ours = QuantizedWeight(
        format, weight.q.to(device), weight.scales.to(device), weight.zeros.to(device)
    )
    for dtype, limit in _TOLERANCE.items():
        rounded = weight.dequantize().to(dtype)
        assert torch.equal(dequantize(ours, dtype).cpu(), rounded), (format, dtype)
        if dtype is torch.float32 or not unit.has_dot:
            for rows in (1, 4, 16):
                x = torch.randn(rows, 2048, generator=generator).to(dtype)
                found = multiply(x.to(device), ours, None, unit).cpu().double()
                expected = x.double() @ rounded.double().T
                size = x.double().abs() @ rounded.double().abs().T
                assert bool(((found - expected).abs() <= limit * size).all()), (format, dtype, rows)
        else:
            _check_matrix_units(weight, ours, dtype, unit)


def _check_matrix_units(
    weight: QuantizedWeight,
    ours: QuantizedWeight,
    dtype: torch.dtype,
    unit: triton_support.TritonDevice,
) -> None:
    """Codes are exact in 16 bits, and so results but for their own rounding: few variants are
    compiled for these rows; of the last ones, weights are dequantized before.
    """
    from tandem.models.linear import quantized_linear

    exact, device = weight.dequantize().double(), ours.q.device
    x = torch.randn(300, 2048, generator=torch.Generator().manual_seed(4)).to(dtype)
    expected, size = x.double() @ exact.T, x.double().abs() @ exact.abs().T
    # of few processors, tiles are the largest
    units = {128: replace(unit, processors=4)}
    for rows in (1, 3, 16, 40, 64, 100, 128, 300):
        affine, taken = Affine(ours.q, None, ours), x[:rows].to(device)
        found = quantized_linear(affine, ours, taken, units.get(rows, unit))
        off = (found.cpu().double() - expected[:rows]).abs()
        share = torch.finfo(dtype).eps if rows > 128 else 2e-5
        limit = torch.finfo(dtype).eps * expected[:rows].abs() + share * size[:rows]
        assert bool((off <= limit).all()), (ours.format, dtype, rows)
        if rows == 3:
            _check_recorded(partial(quantized_linear, affine, ours, taken, unit), found)


def _check_recorded(work: Callable[[], torch.Tensor], expected: torch.Tensor) -> None:
    """Counters of a graph are ready for its next launch, and its splits add up as before."""
    launch, result = CudaGraphs(expected.device).record(work)
    for _ in range(3):
        result.zero_()
        launch()
        assert torch.equal(result, expected)


def _quantized(weight: torch.Tensor, format: WeightFormat) -> QuantizedWeight:
    """Of floats, as a checkpoint of FP8 by channel has it."""
    if not format.floats:
        return quantize(weight, format)
    scales = weight.abs().amax(1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    codes = (weight / scales).to(torch.float8_e4m3fn)
    return ScaledFloats(codes, scales, weight.shape[1]).packed(format)


def test_experts_in_float32() -> None:
    _check_experts(torch.float32)


def test_experts_in_float16() -> None:
    _check_experts(torch.float16)


def test_experts_in_bfloat16() -> None:
    _check_experts(torch.bfloat16)


def _check_experts(dtype: torch.dtype) -> None:
    """All of a mixture in a few launches, as one expert after the other."""
    if not triton_support.available():
        raise unittest.SkipTest("Triton is not installed")
    from tandem.kernels.triton_expert_products import Chosen, ExpertMap, multiply_experts

    device = torch.device("cuda")
    unit = triton_support.unit_of(device)
    assert unit is not None
    generator = torch.Generator().manual_seed(4)
    floats = torch.randn(8, 1000, 1024, generator=generator) / 8
    codes = [quantize(each, WeightFormat(4, 128)) for each in floats]
    there = [
        QuantizedWeight(w.format, w.q.to(device), w.scales.to(device), w.zeros.to(device))
        for w in codes
    ]
    limit = _TOLERANCE[dtype]
    kinds = (
        (there, [w.dequantize().to(dtype) for w in codes]),
        (list(floats.to(dtype).to(device)), list(floats.to(dtype))),
    )
    for weights, expected in kinds:
        found = ExpertMap.of(weights)
        assert found is not None
        for tokens in (1, 20, 80):
            chosen = torch.rand(tokens, 8, generator=generator).topk(2).indices
            x = torch.randn(tokens, 1024, generator=generator).to(dtype)
            order = Chosen.of(chosen.to(device), 8)
            y = multiply_experts(x.to(device), found, order, None, unit).cpu().double()
            rows = x.double().repeat_interleave(2, dim=0)
            for place, expert in enumerate(chosen.flatten().tolist()):
                w, row = expected[expert].double(), rows[place]
                size = w.abs() @ row.abs()
                assert bool(((y[place] - w @ row).abs() <= limit * size).all()), (dtype, place)


def test_rotation_and_gates_are_the_host_s() -> None:
    if not triton_support.available():
        raise unittest.SkipTest("Triton is not installed")
    from tandem.kernels.triton_row_operations import GATED_ACTIVATIONS, gated, rotated
    from tandem.models.layer_steps import activate
    from tandem.models.rotary import rotate, rotation_of

    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(300, (_HEADS + 2 * _KV_HEADS) * _DIM, generator=generator)
    cos, sin = rotation_of(torch.arange(300), 10000.0 ** -torch.linspace(0, 1, _DIM // 2))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        limit = _TOLERANCE[dtype]
        turning = whole.to(dtype).unflatten(1, (-1, _DIM))[:, : _HEADS + _KV_HEADS]
        found = rotated(turning.cuda(), cos.cuda(), sin.cuda())
        torch.testing.assert_close(found.cpu(), rotate(turning, (cos, sin)), atol=limit, rtol=limit)
        gate, up = whole.to(dtype).chunk(2, dim=1)
        for name in GATED_ACTIVATIONS:
            found = gated(name, gate.cuda(), up.cuda()).cpu()
            expected = activate(name, gate).mul_(up)
            torch.testing.assert_close(found, expected, atol=limit, rtol=limit)


def test_a_host_that_does_not_come_is_not_waited_for_for_ever() -> None:
    if not triton_support.available() or not native.available():
        raise unittest.SkipTest("Triton or the compiled kernels are not there")
    from tandem.runtime.host_link import HostLink, HostLostError, LinkRows

    device, limit_s = torch.device("cuda", 0), 0.2
    pinned, seen = partial(pinned_bytes, node=None), partial(as_seen_by, device)
    link = HostLink(4, (2, 1, 16), torch.float32, device, pinned, seen, limit_s)
    row = np.array([0], dtype=np.int32)
    steps = [LinkRows(3 * number, number, row, row) for number in range(2)]
    begun_s = time.perf_counter()
    for step in steps:  # of three layers each, the first of which the host does
        link.up.set(1)
        link.numbers.copy_(link.numbers_of(step))
        for layer in range(3):
            link.receive(layer, 1)
    torch.cuda.synchronize()
    # once, beside what is compiled
    assert limit_s <= time.perf_counter() - begun_s < 60.0
    for step in steps:
        try:
            link.waited_s(step)
        except HostLostError:
            continue
        raise AssertionError("a host that did not come was not missed")


# --- last: a library that is compiled when it is first used may take long -------------------------


def test_prompts_by_flashinfer() -> None:
    _check_library("flashinfer")


def test_prompts_by_torch() -> None:
    _check_library("torch")


def _check_library(name: str) -> None:
    """What it gives is right; that it cannot run here is its own affair, and a skip that says why:
    nobody takes it who does not ask for it.
    """
    if not triton_support.available():
        raise unittest.SkipTest("Triton is not installed")
    from tandem.kernels.open_prompts import NoPromptLibraryError, open_prompts
    from tandem.kernels.prompt_kernels import PromptKernels
    from tandem.kernels.triton_kernels import TritonKernels

    device, dtype = torch.device("cuda"), torch.float16
    unit = triton_support.unit_of(device)
    assert unit is not None
    shape, lane, scale = PageShape(_KV_HEADS, _BLOCK, _DIM), _lane(), _DIM**-0.5
    pages = _pages(shape, dtype, int(lane.block_table.max()) + 1)
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(len(lane.positions), _HEADS, _DIM, generator=generator).to(dtype)
    inner = TritonKernels(device, _HEADS, shape, scale, 0.0, unit, dtype)
    try:
        library = open_prompts(name, device, _HEADS, shape, scale, 0.0, dtype)
    except NoPromptLibraryError as error:
        raise unittest.SkipTest(f"{name}: {error}") from error
    kernels = PromptKernels(inner, library)
    for window in (0, 500):
        try:
            found = kernels.attend(query.to(device), pages.to(device), kernels.plan(lane, window))
            torch.cuda.synchronize()
        except Exception as error:  # its own errors are of any type
            raise unittest.SkipTest(f"{name}: {type(error).__name__}: {error}") from error
        expected = exact_attention(query, pages, lane, shape, scale, window=window)
        limit = _TOLERANCE[dtype]
        for ours, exact in zip(found, expected, strict=True):
            torch.testing.assert_close(
                ours.cpu().double(), exact, atol=limit, rtol=limit, msg=f"{name}, window {window}"
            )
