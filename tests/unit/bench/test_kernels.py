"""The kernel benchmark computes what it times, and relates what it should."""

import numpy as np
import pytest
import torch

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.bench.kernel_codes import CodeCell
from tandem.bench.kernels import KernelBench, full, quick, run_kernels
from tandem.kernels.native_attention import NativeBatch, attend_once
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import gather_kv
from tandem.probes.kernel_cases import (
    HeadShape,
    Workload,
    count_pages,
    dense_rows,
    loop_case,
    make_layers,
    workloads,
)
from tandem.probes.kernel_pages import code_pages, code_shape, float_pages
from tandem.spec.kv_type import CodeType

SMALL = HeadShape(8, 2, 64)
LOAD = Workload("A", (130, 64, 1))


def test_workloads_are_those_of_the_targets() -> None:
    a, b, c = workloads()
    assert len(a.lengths) == 16
    assert 1024 <= min(a.lengths) < max(a.lengths) <= 2048
    assert b.lengths == (512,) * 64
    assert sorted(c.lengths) == [256] * 63 + [131072]
    assert quick().rounds < full().rounds


def test_layers_use_disjoint_pages_and_equal_memory() -> None:
    pages = torch.randn(11, 2, 2, 64, 64)
    layers = make_layers(SMALL, LOAD, len(pages))
    assert LOAD.num_blocks == 5
    used = [
        layer.attention.block_table[row, : -(-n // 64)]
        for layer in layers
        for row, n in enumerate(LOAD.lengths)
    ]
    ids = np.concatenate(used)
    assert len(layers) == 2
    assert len(set(ids.tolist())) == len(ids) == 10
    sizes = [k.numel() + v.numel() for k, v in dense_rows(SMALL, LOAD, pages, 0)]
    assert sizes == [2 * 2 * 64 * n for n in LOAD.lengths]


def test_pages_are_full_of_numbers_and_at_least_a_layers() -> None:
    shape = HeadShape(4, 2, 64)
    pages = float_pages(shape, 70, torch.float16)
    assert pages.shape == (70, 2, 2, 64, 64)
    assert float(pages[-1].float().std()) > 0.5
    assert count_pages(Workload("B", (64 * 99,)), 1 << 30) == 99


@pytest.mark.parametrize("kv", list(CodeType))
def test_quantized_pages_are_full_of_numbers(kv: CodeType) -> None:
    own = code_shape(SMALL, kv)
    pages = code_pages(SMALL, 37, kv)
    assert pages.shape == (37, own.quantized.page_bytes)
    held = gather_kv(pages, torch.arange(37 * 4), 64, 64, own)
    assert float(held[-1].std()) == pytest.approx(1.0, abs=0.1)
    cell = CodeCell(SMALL, LOAD, kv, 1)
    assert cell.half_key_bytes == 2 * 2 * 64 * 2
    assert cell.key_bytes == 2 * 2 * (64 * kv.bits / 8 + 4)


def test_the_cached_loop_attends_to_its_page() -> None:
    few, attention = loop_case(SMALL, num_threads=2)
    pages = float_pages(few, len(attention.positions), torch.float32)
    query = torch.randn(len(pages), few.heads, few.head_dim)
    result = attend_once(NativePool(2), query, pages, attention, few.scale)
    keys, values = pages.unbind(1)  # repeated, keys weigh the same
    folded = (len(pages), few.kv_heads, few.heads // few.kv_heads, few.head_dim)
    weights = torch.softmax(query.view(folded) @ keys.mT * few.scale, -1)
    # The kernel adds 16,384 terms in float32, this only a page's.
    torch.testing.assert_close(result.out.view(folded), weights @ values, atol=1e-4, rtol=1e-4)


def test_each_part_of_the_cached_loop_has_a_page_of_its_own() -> None:
    few, attention = loop_case(SMALL, num_threads=2)
    batch = NativeBatch.from_binding(attention, few.pages, few.heads, num_threads=2)
    rows = len(attention.positions)
    assert batch.plan.num_parts == rows
    assert (attention.block_table == np.arange(rows)[:, None]).all()


def test_every_figure_has_its_bound_and_threads_are_put_back() -> None:
    threads = torch.get_num_threads()
    told: list[str] = []
    loads = (LOAD, Workload("C", (300, 1)))
    config = KernelBench((SMALL,), loads, (torch.float16,), (CodeType.INT4,), (1,), rounds=2)
    rows = run_kernels(config, told.append)
    floats = ["A 8/2/64 float16 1 threads", "C 8/2/64 float16 1 threads"]
    codes = ["A 8/2/64 int4 1 threads", "C 8/2/64 int4 1 threads"]
    assert told == floats + codes
    assert torch.get_num_threads() == threads
    for row in rows:
        assert row.spread is not None
        assert 0 < row.spread[0] <= row.value <= row.spread[1]
    variants = {row.variant for row in rows if row.metric == "bandwidth" and row.bound}
    assert variants == {f"tandem {native.choose_isa()}", "torch best", "torch naive"}
    gains = [row for row in rows if row.metric == "tokens/s over float16, paired"]
    assert [row.case for row in gains] == codes
    assert {row.bound for row in gains} == {64 * 2 / (64 / 2 + 4)}
    for over, metric in (
        ("share of roofline over A's", "share of roofline, paired"),
        ("bandwidth over A's", "bandwidth"),
    ):
        relative = next(row for row in rows if row.metric == over)
        assert relative.case == floats[1]
        found = {r.case[0]: r.value for r in rows if r.metric == metric
                 and r.variant == relative.variant and r.case in floats}  # fmt: skip
        assert relative.value == pytest.approx(found["C"] / found["A"])
