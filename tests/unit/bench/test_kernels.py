"""The kernel benchmark computes what it times, and relates what it should."""

import numpy as np
import pytest
import torch

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.bench.kernel_cases import (
    HeadShape,
    Workload,
    loop_case,
    make_layers,
    make_pages,
    workloads,
)
from tandem.bench.kernels import KernelBench, full, quick, run_kernels
from tandem.kernels.native_attention import NativeBatch, attend_once
from tandem.kernels.native_pool import NativePool

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
    layers = make_layers(SMALL, LOAD, pages)
    assert LOAD.num_blocks == 5
    used = [
        layer.attention.block_table[row, : -(-n // 64)]
        for layer in layers
        for row, n in enumerate(LOAD.lengths)
    ]
    ids = np.concatenate(used)
    assert len(layers) == 2
    assert len(set(ids.tolist())) == len(ids) == 10
    sizes = [k.numel() + v.numel() for k, v in layers[0].dense]
    assert sizes == [2 * 2 * 64 * n for n in LOAD.lengths]


def test_pages_hold_a_whole_layer_of_numbers() -> None:
    pages = make_pages(HeadShape(4, 2, 64), Workload("B", (64,)), torch.float16)
    assert pages.shape[1:] == (2, 2, 64, 64)
    assert float(pages[-1].float().std()) > 0.5


def test_the_cached_loop_attends_to_its_page() -> None:
    few, pages, attention = loop_case(SMALL, torch.float32, num_threads=2)
    query = torch.randn(len(pages), few.heads, few.head_dim)
    result = attend_once(NativePool(2), query, pages, attention, few.scale)
    keys, values = pages.unbind(1)  # repeated, keys weigh the same
    folded = (len(pages), few.kv_heads, few.heads // few.kv_heads, few.head_dim)
    weights = torch.softmax(query.view(folded) @ keys.mT * few.scale, -1)
    # The kernel adds 16,384 terms in float32, this only a page's.
    torch.testing.assert_close(result.out.view(folded), weights @ values, atol=1e-4, rtol=1e-4)


def test_each_part_of_the_cached_loop_has_a_page_of_its_own() -> None:
    few, pages, attention = loop_case(SMALL, torch.float32, num_threads=2)
    batch = NativeBatch.from_binding(attention, few.pages, few.heads, num_threads=2)
    assert batch.plan.num_parts == len(pages)
    assert (attention.block_table == np.arange(len(pages))[:, None]).all()


def test_every_figure_has_its_bound_and_threads_are_put_back() -> None:
    threads = torch.get_num_threads()
    told: list[str] = []
    loads = (LOAD, Workload("C", (300, 1)))
    config = KernelBench((SMALL,), loads, (torch.float16,), (1,), rounds=2)
    rows = run_kernels(config, told.append)
    assert told == ["A 8/2/64 float16 1 threads", "C 8/2/64 float16 1 threads"]
    assert torch.get_num_threads() == threads
    for row in rows:
        assert row.spread is not None
        assert 0 < row.spread[0] <= row.value <= row.spread[1]
    variants = {row.variant for row in rows if row.metric == "bandwidth" and row.bound}
    assert variants == {f"tandem {native.choose_isa()}", "torch best", "torch naive"}
    (relative,) = [row for row in rows if row.metric == "share of roofline over A's"]
    shares = {r.case[0]: r.value for r in rows if r.metric == "share of roofline, paired"
              and r.variant == relative.variant}  # fmt: skip
    assert relative.value == pytest.approx(shares["C"] / shares["A"])
