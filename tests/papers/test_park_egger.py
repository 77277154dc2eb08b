"""The split search against an independent brute force, and against the tables' known optima."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem
from tandem.bench.papers.park_egger import (
    KV_OPERATIONS,
    compressed,
    park_egger_cells,
    single_batch,
    two_batches,
)
from tandem.cost.park_egger.nvme_balance import balance, rebalance
from tandem.cost.park_egger.operation_times import OperationTimes, split_operations
from tandem.cost.park_egger.search import best_split, cpu_first, gpu_first, two_cuts
from tandem.cost.park_egger.split_cost import SplitCost, split_cost
from tandem.cost.park_egger.split_memory import OperationSizes, split_memory
from tandem.spec.operations import Stage

MS = 1e-3
TABLES = {"6a": (single_batch, 1), "7a": (two_batches, 2), "8a": (compressed, 1)}


def brute_force(operations: Sequence[OperationTimes], batches: int, storage: bool) -> float:
    """Latency of the best assignment; a string over {C, G} says who computes each operation."""
    m = len(operations)
    best = float("inf")
    for assignment in itertools.product("CG", repeat=m) if m <= 11 else _contiguous(m):
        text = "".join(assignment)
        if "C" in text.strip("C"):
            continue  # the GPU's operations are contiguous
        on_gpu = [k for k in range(m) if text[k] == "G"]
        storable = [k for k in on_gpu if storage and operations[k].weight_storage_s > 0]
        for choice in itertools.product((False, True), repeat=len(storable)):
            nvme = {k for k, chosen in zip(storable, choice, strict=True) if chosen}
            latency = _latency(operations, text, nvme, batches)
            best = min(best, latency)
    return best


def _contiguous(m: int) -> list[str]:
    seen = {"C" * m}
    for a in range(m):
        for length in range(1, m - a + 1):
            seen.add("C" * a + "G" * length + "C" * (m - a - length))
    return sorted(seen)


def _latency(
    operations: Sequence[OperationTimes], text: str, nvme: set[int], batches: int
) -> float:
    cpu = link = decompress = storage = 0.0
    firsts: list[float] = []
    for k, op in enumerate(operations):
        if text[k] == "C":
            cpu += op.cpu_s * batches
            continue
        over_link = op.kv_link_s + (0.0 if k in nvme else op.weight_link_s)
        firsts.append(over_link)
        link += over_link + (batches - 1) * (op.gpu_s + op.kv_link_s)
        decompress += batches * op.kv_decompress_s
        if k in nvme:
            storage += op.weight_storage_s
        else:
            decompress += op.weight_decompress_s
    if decompress > 0:
        decompress += firsts[0]
    return max(cpu, link, decompress, storage)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("storage", [False, True])
def test_the_search_equals_brute_force_on_the_papers_tables(table: str, storage: bool) -> None:
    build, batches = TABLES[table]
    operations = build()
    found = best_split(operations, batches=batches, storage=storage)
    expected = brute_force(operations, batches, storage)
    assert found.cost.latency_s == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("table", TABLES)
def test_the_search_in_pieces_equals_brute_force(table: str) -> None:
    build, batches = TABLES[table]
    pieces = split_operations(build(), KV_OPERATIONS, 8)
    assert len(pieces) == 11 + 2 * 7
    found = best_split(pieces, batches=batches, storage=table == "8a")
    expected = brute_force(pieces, batches, table == "8a")
    assert found.cost.latency_s == pytest.approx(expected, rel=1e-12)


times = st.floats(0, 10, allow_nan=False)
some_operations = st.lists(
    st.builds(OperationTimes, st.just("op"), *[times] * 7), min_size=0, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(some_operations, st.integers(1, 4), st.booleans())
def test_the_search_equals_brute_force_on_any_list(
    operations: list[OperationTimes], batches: int, storage: bool
) -> None:
    found = best_split(operations, batches=batches, storage=storage)
    assert found.cost.latency_s == pytest.approx(
        brute_force(operations, batches, storage), rel=1e-8, abs=1e-9
    )


def test_reference_optima_of_table_6a() -> None:
    operations = single_batch()
    strict = [s for s in two_cuts(11) if 0 < s.start < s.end < 11]
    scores = split_operations(operations, ["Scores"], 8)
    latency = {
        "gpu only": best_split(operations, slices=[Stage(0, 11)]),
        "cpu first": best_split(operations, slices=cpu_first(11)),
        "gpu first": best_split(operations, slices=gpu_first(11)),
        "strict": best_split(operations, slices=strict),
        "in pieces": best_split(scores, slices=cpu_first(len(scores))),
    }
    found = {name: split.cost.latency_s / MS for name, split in latency.items()}
    assert found == pytest.approx(
        {
            "gpu only": 81.258,
            "cpu first": 68.615,
            "gpu first": 47.546,
            "strict": 47.664,
            "in pieces": 60.943,
        },
        rel=1e-5,
    )
    assert best_split(operations).gpu == Stage(0, 9)


def test_the_tables_are_those_of_the_paper() -> None:
    path = Path(tandem.__file__).parent / "assets" / "papers" / "park-egger.json"
    table = json.loads(path.read_text())["fig6a"]
    assert sum(table["h2d"]) == pytest.approx(81.258)
    assert sum(op.link_s for op in single_batch()) == pytest.approx(81.258 * MS)
    assert [op.name for op in compressed() if op.weight_storage_s] == [
        "Q", "K", "V", "Output", "FC.0", "FC.1",
    ]  # fmt: skip


def test_multi_batch_repeats_kv_and_compute_but_not_weights() -> None:
    operations = (
        OperationTimes("Q", cpu_s=1, gpu_s=2, weight_link_s=5),
        OperationTimes("Scores", cpu_s=3, gpu_s=4, kv_link_s=7),
        OperationTimes("FC", cpu_s=10, gpu_s=1, weight_link_s=2),
    )
    cost = split_cost(operations, Stage(0, 2), batches=3)
    assert cost == SplitCost(cpu_s=30, link_s=5 + 7 + 2 * (2 + 4 + 7))


def test_weights_on_nvme_leave_the_link_and_the_decompression() -> None:
    operations = (
        OperationTimes("Q", 1, weight_link_s=2, weight_decompress_s=3, weight_storage_s=9),
        OperationTimes("K", 1, weight_link_s=2, weight_decompress_s=3, weight_storage_s=9),
    )
    assert split_cost(operations, Stage(0, 2)) == SplitCost(0, 4, 8, 0)
    assert split_cost(operations, Stage(0, 2), stored=[1]) == SplitCost(0, 2, 5, 9)
    with pytest.raises(ValueError, match="must lie in"):
        split_cost(operations, Stage(0, 1), stored=[1])


def test_ties_go_to_the_split_that_idles_least() -> None:
    # CPU only and either cut take 4 s; with "a" on the GPU both resources work longest.
    operations = (
        OperationTimes("a", cpu_s=1, weight_link_s=4),
        OperationTimes("b", cpu_s=3, weight_link_s=4),
    )
    costs = [split_cost(operations, gpu) for gpu in (Stage(0, 0), Stage(1, 2), Stage(0, 1))]
    assert [cost.latency_s for cost in costs] == [4, 4, 4]
    assert best_split(operations).gpu == Stage(0, 1)


def test_other_operation_lists_are_searched_too() -> None:
    """An activation-sequence-reordered list (Output before WV) and one that selects half the KV."""
    base = {op.name: op for op in single_batch()}
    order = ["LN.0", "Q", "Scores", "Softmax", "K", "V", "Output", "WV", "LN.1", "FC.0", "FC.1"]
    reordered = [base[name] for name in order]
    halved = [op if op.name not in KV_OPERATIONS else op.in_pieces(2)[0] for op in single_batch()]
    for operations in (reordered, halved):
        found = best_split(operations).cost.latency_s
        assert found == pytest.approx(brute_force(operations, 1, False), rel=1e-12)
    assert best_split(halved).cost.latency_s < best_split(single_batch()).cost.latency_s


# --- NVMe -----------------------------------------------------------------------------------------


def _lanes(shares: Sequence[float]) -> list[float]:
    """Four drives of which the last two share a bus, as on the paper's board."""
    rates = [14.0, 7.0, 3.5, 3.5]
    slowed = 1.0 + min(shares[2], shares[3]) / max(shares[2], shares[3])
    return [
        share / rate * (slowed if index > 1 else 1.0)
        for index, (share, rate) in enumerate(zip(shares, rates, strict=True))
    ]


def test_balance_equalises_drives_that_disturb_each_other() -> None:
    before = _lanes([0.25] * 4)
    after = _lanes(balance(4, _lanes, alpha=0.5, rounds=10))
    assert max(before) / min(before) > 4
    assert max(after) / min(after) < 1.02
    assert max(after) < 0.6 * max(before)


def test_balance_with_the_printed_sign_diverges() -> None:
    def printed(shares: list[float], times: list[float]) -> list[float]:
        mean = sum(times) / len(times)
        raw = [s * (1 + 0.5 * (1 - mean / t)) for s, t in zip(shares, times, strict=True)]
        return [share / sum(raw) for share in raw]

    times = _lanes([0.25] * 4)
    worse = _lanes(printed([0.25] * 4, times))
    assert max(worse) > max(times) > max(_lanes(rebalance([0.25] * 4, times, 0.5)))


def test_balance_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match="cannot balance"):
        rebalance([0.5, 0.5], [1.0, 0.0], 0.5)
    with pytest.raises(ValueError, match="cannot balance"):
        rebalance([0.5, 0.5], [1.0, 1.0], 0.0)


# --- memory and the record ------------------------------------------------------------------------


def test_stationary_bytes_stay_pageable_and_crossing_ones_are_pinned() -> None:
    sizes = [OperationSizes(10), OperationSizes(0, 7), OperationSizes(100)]
    memory = split_memory(sizes, Stage(1, 3), layers=3, batches=2, stored=[2], drives=4)
    assert memory.pageable_bytes == 30
    assert memory.pinned_bytes == 3 * 2 * 7
    assert memory.storage_bytes == 4 * 3 * 100
    assert memory.accelerator_bytes == 2 * 100 + 7
    assert memory.host_bytes == 72


def test_the_papers_percentages_are_reported_not_fitted() -> None:
    cells = {cell.cell: cell for cell in park_egger_cells() if cell.place == "figure 14"}
    first = cells["one cut, CPU first: reduction"]
    assert first.predicted == pytest.approx(0.156, abs=1e-3)
    assert (first.published, first.role) == (0.3, "listed")
    assert cells["Scores in 8, CPU first: on top"].predicted == pytest.approx(0.112, abs=1e-3)
    overlap = next(cell for cell in park_egger_cells() if cell.place == "figure 18a")
    assert overlap.error == pytest.approx(0.0, abs=0.02)
