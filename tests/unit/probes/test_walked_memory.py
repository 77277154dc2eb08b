"""What calls walk through: filled at once, walked in turns, and no more of it made than is read."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import torch
from tests.unit.probes.test_profiler import TINY

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels.native_linear import NativeLinear
from tandem.kernels.native_pool import NativePool
from tandem.probes import attention_times, linear_times, native_samples
from tandem.probes.kernel_cases import HeadShape, LayerCase, Workload, make_layers
from tandem.probes.linear_cases import FLOAT16, MatrixShape, WeightKind, make_copies, quantized_kind
from tandem.probes.rounds import median_seconds, most_calls
from tandem.probes.walked_memory import WalkedMemory, fill
from tandem.spec.dtype import DType


@pytest.mark.parametrize("size", [1, 5, 12, 15])
def test_few_numbers_fill_much(size: int) -> None:
    target = torch.full((size,), -1.0)
    fill(target, torch.arange(5.0))
    assert target.tolist() == [i % 5 for i in range(size)]


def test_memory_is_taken_again_and_grows_where_it_must() -> None:
    memory = WalkedMemory(8 << 20)
    first = memory.take((1 << 20,), torch.float32)
    assert memory.take((2, 4, 8), torch.float16).data_ptr() == first.data_ptr()
    parts = memory.parts(2)
    taken = [part.take((4 << 20,), torch.uint8) for part in parts]
    assert [each.data_ptr() - first.data_ptr() for each in taken] == [0, 4 << 20]
    taken[1].fill_(3)
    assert memory.take((8 << 20,), torch.uint8)[4 << 20 :].eq(3).all()
    assert parts[0].take((5 << 20,), torch.uint8).data_ptr() != first.data_ptr()
    assert memory.take((9 << 20,), torch.uint8).shape == (9 << 20,)


@pytest.mark.parametrize("kind", [FLOAT16, quantized_kind(8, 64), quantized_kind(4, 64)], ids=str)
def test_copies_lie_side_by_side_and_fill_the_memory(kind: WeightKind) -> None:
    shape, memory = MatrixShape(64, 128), WalkedMemory(1 << 20)
    block = memory.take((1 << 20,), torch.uint8)
    copies = make_copies(shape, kind, memory)
    assert copies.count == (1 << 20) // kind.size_bytes(shape)
    weights = [weight.q for weight in copies.quantized] or list(copies.tensors)
    ends = {(each.data_ptr(), each.data_ptr() + each.nbytes) for each in weights}
    assert min(begin for begin, _ in ends) == block.data_ptr()
    assert max(end for _, end in ends) <= block.data_ptr() + block.nbytes
    assert len(ends) == copies.count
    values = [w.dequantize() for w in copies.quantized] or [w.float() for w in copies.tensors]
    for value in (values[0], values[-1]):
        assert 0.3 < float(value.std()) * shape.inputs**0.5 < 3


def test_no_product_is_by_a_weight_that_came_before_all_others_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[NativeLinear] = []
    monkeypatch.setattr(
        native_samples, "linear_into", lambda y, pool, weight, *rest, **named: used.append(weight)
    )
    weights = make_copies(MatrixShape(64, 64), FLOAT16, WalkedMemory(10 * 64 * 64 * 2)).native()
    turns, shape = cycle(weights), MatrixShape(64, 64)
    samples = {
        rows: native_samples.multiplying(NativePool(1), turns, shape, torch.randn(rows, 64))
        for rows in (1, 8)
    }
    median_seconds(samples, 2)
    assert len(used) == 2 * most_calls(2)
    assert used == [weights[i % 10] for i in range(len(used))]


def test_sides_have_weights_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    make = make_copies

    def noted(shape: MatrixShape, kind: WeightKind, memory: WalkedMemory) -> Any:
        copies = make(shape, kind, memory)
        first, last = copies.tensors[0], copies.tensors[-1]
        made.append((first.data_ptr(), last.data_ptr() + last.nbytes))
        return copies

    monkeypatch.setattr(linear_times, "make_copies", noted)
    memory = WalkedMemory(8 << 20)
    linear_times.measure_linear(NativePool(1), TINY, FLOAT16, memory)
    (begin, between), (after, end) = made
    assert begin < between <= after < end
    assert end - begin == 8 << 20


def test_layers_go_on_where_others_ended_and_are_no_more_than_calls() -> None:
    heads, load = HeadShape(4, 2, 64), Workload("two", (64, 100))

    def pages(layers: list[LayerCase]) -> list[int]:
        tables = (layer.attention.block_table for layer in layers)
        return [int(page) for table in tables for page in (table[0, 0], *table[1])]

    everything = pages(make_layers(heads, load, 30))
    assert sorted(everything) == list(range(30))
    assert pages(make_layers(heads, load, 30, most=2)) == everything[:6]
    again = pages(make_layers(heads, load, 30, most=2, first=27))
    assert again == everything[27:] + everything[:3]


def test_attention_over_other_sizes_goes_on_with_other_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[set[int]] = []
    make: Callable[..., list[LayerCase]] = make_layers

    def noted(*args: Any, **named: Any) -> list[LayerCase]:
        layers = make(*args, **named)
        tables = (layer.attention.block_table.ravel().tolist() for layer in layers)
        made.append({page for table in tables for page in table})
        return layers

    monkeypatch.setattr(attention_times, "make_layers", noted)
    effort = replace(TINY, contexts=(64, 128))
    page_bytes = effort.heads.pages.numel * 2
    memory = WalkedMemory(most_calls(effort.rounds) * 9 * page_bytes)
    attention_times.measure_attention(NativePool(1), effort, DType.FLOAT16, memory)
    assert [len(pages) for pages in made] == [n * most_calls(effort.rounds) for n in (1, 2, 2, 4)]
    assert len(set[int]().union(*made)) == 9 * most_calls(effort.rounds)


def test_what_took_long_at_first_is_not_called_again_where_time_is_short() -> None:
    calls: list[str] = []

    def sample(name: str, taken_s: float) -> Callable[[int], float]:
        def call(_: int) -> float:
            calls.append(name)
            return taken_s

        return call

    samples = {"long": sample("long", 0.5), "short": sample("short", 0.01)}
    assert median_seconds(samples, 1) == {"long": 0.5, "short": 0.01}
    assert calls == ["long", "short", "short"]
    calls.clear()
    median_seconds(samples, 3)
    assert calls == ["long", "short"] * 4


def test_a_mean_of_calls_that_took_long_together_is_not_taken_again_and_again() -> None:
    calls: list[int] = []

    def mean_of_many(number: int) -> float:
        calls.append(number)
        begin_s = time.perf_counter()
        while time.perf_counter() < begin_s + 5e-3:
            pass
        return 5e-6

    assert median_seconds({"mean": mean_of_many}, 3) == {"mean": 5e-6}
    assert calls == [0, 1, 2, 3, 4]
