"""Equations 1 to 24, decisions per tensor, threads, and tables 1 and 3."""

import itertools
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.bench.papers.cells import Role, median_error
from tandem.bench.papers.lm_offload import figure3_cells, table1_cells
from tandem.bench.papers.lm_offload_machine import workload_of
from tandem.bench.papers.lm_offload_table3 import (
    FRAMEWORKS,
    calibration_cells,
    factors,
    table3_cells,
)
from tandem.cost.lm_offload.decision import choose_precision
from tandem.cost.lm_offload.memory import least_weights_on_host, offload_memory
from tandem.cost.lm_offload.operator_graph import (
    TimedGraph,
    bundle_small,
    maximum_concurrency,
    topological_order,
)
from tandem.cost.lm_offload.quantization import QuantRates, published_rates
from tandem.cost.lm_offload.tasks import (
    OffloadRates,
    TaskTimes,
    generation_time,
    task_times,
)
from tandem.cost.lm_offload.threads import CopyTask, plan_threads, share_threads
from tandem.cost.lm_offload.workload import OffloadPolicy, OffloadWorkload
from tandem.cost.rates import DeviceRates

WORKLOAD = OffloadWorkload(
    prompt=6, generate=4, rows=5, layers=3, hidden_size=8, kv_size=8, layer_weights=768
)
FAST = DeviceRates(1e15, 1e15, 0.0)
INSTANT = QuantRates(1e15, 1e15)
RATES = OffloadRates(1e3, 2e3, FAST, FAST, INSTANT, INSTANT)


# --- sizes and tasks ------------------------------------------------------------------------------


def test_sizes_are_equations_17_to_19_without_the_factor_n() -> None:
    s, n, h1, bls = 6, 4, 8, 5
    assert WORKLOAD.layer_weights == 4 * h1**2 + 2 * h1 * 4 * h1
    assert WORKLOAD.prefill_kv == 2 * (s + 1) * h1 * bls
    assert WORKLOAD.old_kv * n == (2 * (s + n / 2) * h1 * bls) * n
    assert WORKLOAD.new_kv * n == 2 * h1 * bls * n


def test_tasks_are_sizes_over_rates() -> None:
    policy = OffloadPolicy(weights_on_host=0.5, cache_on_host=0.25)
    tasks = task_times(WORKLOAD, policy, RATES)
    assert tasks.load_weight_s == pytest.approx(768 * 0.5 * 2 / 1e3)
    assert tasks.load_cache_s == pytest.approx(2 * 8 * 8 * 5 * 0.25 * 2 / 1e3)
    assert tasks.store_cache_s == pytest.approx(2 * 8 * 5 * 0.25 * 2 / 2e3)
    assert tasks.load_activation_s == pytest.approx(8 * 5 * 2 / 1e3)
    assert tasks.store_activation_s == pytest.approx(8 * 5 * 2 / 2e3)
    assert tasks.bottleneck == "load_weight"
    assert tasks.slowest_s == tasks.load_weight_s


def test_the_slowest_task_decides() -> None:
    assert TaskTimes(1, 2, 3, 4, 5, 6).slowest_s == 6
    assert TaskTimes(1, 9, 3, 4, 5, 6).bottleneck == "load_cache"


def test_attention_on_the_cpu_moves_no_kv_and_reads_it_there() -> None:
    rates = replace(RATES, host=DeviceRates(100.0, 1e15, 0.0))
    tasks = task_times(WORKLOAD, OffloadPolicy(0.5, attention_on_cpu=True), rates)
    assert (tasks.load_cache_s, tasks.store_cache_s) == (0, 0)
    assert tasks.compute_s == pytest.approx(WORKLOAD.old_kv * 2 / 100)


def test_dequantization_is_added_to_loads_and_quantization_to_stores() -> None:
    gpu = QuantRates(quantize_elements_per_s=50, dequantize_elements_per_s=200)
    rates = replace(RATES, accelerator_quant=gpu)
    plain = task_times(WORKLOAD, OffloadPolicy(0.5), RATES)
    tasks = task_times(WORKLOAD, OffloadPolicy(0.5, weight_bits=4, kv_bits=8), rates)
    assert tasks.load_weight_s == pytest.approx(plain.load_weight_s / 4 + 384 / 200)  # eq. 4
    assert tasks.load_cache_s == pytest.approx(plain.load_cache_s / 2 + 640 / 200)  # eq. 6
    assert tasks.store_cache_s == pytest.approx(plain.store_cache_s / 2 + 80 / 50)  # eq. 7


def test_generation_is_equation_1() -> None:
    rates = replace(RATES, host_quant=QuantRates(10, 10), storage_bytes_per_s=7.0)
    policy = OffloadPolicy(0.5, weight_bits=4)
    time = generation_time(WORKLOAD, policy, rates)
    assert time.init_s == pytest.approx(3 * (768 * 2 / 7 + 384 / 10))  # eq. 3
    assert time.decode_s == pytest.approx(time.step.slowest_s * (4 - 1) * 3)
    assert time.total_s == pytest.approx(time.init_s + time.prefill_s + time.decode_s)
    assert time.tokens == 20
    quantized = generation_time(WORKLOAD, replace(policy, kv_bits=4), rates)
    slow = replace(rates, accelerator_quant=QuantRates(5, 1e15))
    slower = generation_time(WORKLOAD, replace(policy, kv_bits=4), slow)
    extra = slower.prefill_s - quantized.prefill_s
    assert extra == pytest.approx(3 * WORKLOAD.prefill_kv / 5)  # eq. 5


def test_published_quantization_rates() -> None:
    rates = published_rates(frequency_hz=2.0, flops_per_s=6.0, memory_bytes_per_s=4.0)
    assert 1 / rates.quantize_elements_per_s == pytest.approx(1 / 2 + 3 / 6 + 1 / 4)  # eq. 12
    assert 1 / rates.dequantize_elements_per_s == pytest.approx(3 / 6 + 1 / 4)  # eq. 16


def test_published_dequantization_is_too_fast_for_figure_4() -> None:
    """With an A100's data sheet all KV of a step of figure 3 takes 37 ms."""
    a100 = published_rates(1.41e9, 312e12, 1555e9)
    workload = workload_of("OPT-30B", 128, 640)
    step_s = workload.layers * workload.old_kv / a100.dequantize_elements_per_s
    assert step_s == pytest.approx(0.037, abs=0.002)


# --- decisions ------------------------------------------------------------------------------------


def test_fast_dequantization_quantizes_what_crosses() -> None:
    choice = choose_precision(WORKLOAD, OffloadPolicy(0.5), RATES)
    assert (choice.policy.weight_bits, choice.policy.kv_bits) == (4, 4)
    assert choice.weights.pays
    assert choice.cache.pays


def test_slow_dequantization_quantizes_nothing() -> None:
    slow = replace(RATES, accelerator_quant=QuantRates(1, 1))
    choice = choose_precision(WORKLOAD, OffloadPolicy(0.5), slow)
    assert (choice.policy.weight_bits, choice.policy.kv_bits) == (16, 16)
    assert not choice.weights.pays
    assert not choice.cache.pays


def test_tensors_are_decided_one_by_one() -> None:
    """Weights quantized once on a slow host: worth it over a long generation only."""
    rates = replace(RATES, host_quant=QuantRates(100, 100))
    policy = OffloadPolicy(1.0, cache_on_host=0.5)
    for generate, bits in ((2, 16), (200, 4)):
        workload = replace(WORKLOAD, generate=generate, prompt=1, rows=1)
        choice = choose_precision(workload, policy, rates)
        assert choice.policy.weight_bits == bits
        assert choice.weights.pays == (bits == 4)


def test_attention_on_the_cpu_removes_the_reason_to_quantize_kv() -> None:
    choice = choose_precision(WORKLOAD, OffloadPolicy(0.5, attention_on_cpu=True), RATES)
    assert choice.policy.kv_bits == 16
    assert not choice.cache.pays


@settings(max_examples=100)
@given(
    st.floats(0, 1),
    st.booleans(),
    st.floats(10, 1e6),
    st.floats(10, 1e6),
    st.floats(10, 1e6),
)
def test_the_choice_is_the_best_of_all_widths(
    share: float, on_cpu: bool, link: float, gpu: float, host: float
) -> None:
    rates = OffloadRates(
        link, link, FAST, DeviceRates(1e4, 1e6, 0), QuantRates(gpu, gpu), QuantRates(host, host)
    )
    policy = OffloadPolicy(share, attention_on_cpu=on_cpu)
    chosen = choose_precision(WORKLOAD, policy, rates).time.total_s
    for weight, kv in itertools.product((16, 8, 4), (16,) if on_cpu else (16, 8, 4)):
        other = replace(policy, weight_bits=weight, kv_bits=kv)
        assert chosen <= generation_time(WORKLOAD, other, rates).total_s


# --- memory ---------------------------------------------------------------------------------------


def test_opt_30b_takes_what_section_3_says() -> None:
    """Weights 55 GB, KV cache 157 GB."""
    workload = workload_of("OPT-30B", 128, 640)
    everything = offload_memory(workload, OffloadPolicy(1.0, activations_on_host=0.0))
    kv = offload_memory(workload, OffloadPolicy(0.0, activations_on_host=0.0)).host_bytes
    assert kv / 2**30 == pytest.approx(157, rel=0.01)
    assert (everything.host_bytes - kv) / 2**30 == pytest.approx(55, rel=0.01)


def test_attention_on_the_cpu_leaves_more_weights_on_the_accelerator() -> None:
    """The reverse of equations 8 and 9, and what table 1 shows: 16.32 GB against 38.88 GB."""
    workload = workload_of("OPT-30B", 128, 640)
    shares = [
        least_weights_on_host(workload, OffloadPolicy(0, attention_on_cpu=on_cpu), 40e9)
        for on_cpu in (True, False)
    ]
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] < shares[1]


@settings(max_examples=50)
@given(st.integers(1_000, 100_000), st.booleans())
def test_the_least_share_fits_and_no_less_does(capacity: int, on_cpu: bool) -> None:
    policy = OffloadPolicy(0.0, attention_on_cpu=on_cpu)
    share = least_weights_on_host(WORKLOAD, policy, capacity)
    if share is None:
        all_streamed = replace(policy, weights_on_host=1.0)
        assert offload_memory(WORKLOAD, all_streamed).accelerator_bytes > capacity
        return
    fitting = replace(policy, weights_on_host=share)
    assert offload_memory(WORKLOAD, fitting).accelerator_bytes <= capacity * (1 + 1e-9)
    if share > 0.01:
        less = replace(policy, weights_on_host=share - 0.01)
        assert offload_memory(WORKLOAD, less).accelerator_bytes > capacity


# --- threads --------------------------------------------------------------------------------------


def kahn_width(graph: dict[str, tuple[str, ...]]) -> int:
    """The paper's concurrency level: the widest level of the topological sort."""
    level = dict.fromkeys(graph, 0)
    for operator in topological_order(graph):
        for later in graph[operator]:
            level[later] = max(level[later], level[operator] + 1)
    return max(list(level.values()).count(depth) for depth in set(level.values()))


def test_the_antichain_is_wider_than_a_level_of_kahn() -> None:
    # Two chains of different depth that fork late: c1, c2 and d1, d2 can run together.
    graph = {
        "a": ("b",),
        "b": ("c1", "c2"),
        "c1": (),
        "c2": (),
        "d": ("d1", "d2"),
        "d1": (),
        "d2": (),
    }
    assert kahn_width(graph) == 3
    assert maximum_concurrency(graph) == 4


def test_attention_runs_three_projections_at_once() -> None:
    graph = {
        "q": ("scores",),
        "k": ("scores",),
        "v": ("wv",),
        "scores": ("softmax",),
        "softmax": ("wv",),
        "wv": ("output",),
        "output": (),
    }
    assert maximum_concurrency(graph) == 3


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    names = [str(index) for index in range(draw(st.integers(1, 8)))]
    return {
        name: tuple(later for later in names[index + 1 :] if draw(st.booleans()))
        for index, name in enumerate(names)
    }


@settings(max_examples=100)
@given(graphs())
def test_maximum_concurrency_equals_trying_all_sets(graph: dict[str, tuple[str, ...]]) -> None:
    reach = {name: set(after) for name, after in graph.items()}
    for middle, first, last in itertools.product(graph, repeat=3):
        if middle in reach[first] and last in reach[middle]:
            reach[first].add(last)
    widest = max(
        size
        for size in range(len(graph) + 1)
        for chosen in itertools.combinations(graph, size)
        if all(
            b not in reach[a] and a not in reach[b] for a, b in itertools.combinations(chosen, 2)
        )
    )
    assert maximum_concurrency(graph) == widest
    assert kahn_width(graph) <= widest


def test_a_circle_of_operators_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        maximum_concurrency({"a": ("b",), "b": ("a",)})
    with pytest.raises(ValueError, match="not in the graph"):
        maximum_concurrency({"a": ("b",)})


def test_small_operators_are_bundled_along_chains_only() -> None:
    graph = TimedGraph(
        {"q": ("s",), "k": ("s",), "s": ("x",), "x": ("w",), "w": ()},
        {"q": 9.0, "k": 9.0, "s": 9.0, "x": 1.0, "w": 9.0},
    )
    bundled = bundle_small(graph, least_s=2.0)
    assert bundled.successors == {"q": ("s",), "k": ("s",), "s": ("w",), "w": ()}
    assert bundled.times_s == {"q": 9.0, "k": 9.0, "s": 10.0, "w": 9.0}
    assert maximum_concurrency(bundled.successors) == maximum_concurrency(graph.successors)
    assert bundle_small(graph, least_s=100.0).successors == {"q": ("s",), "k": ("s",), "s": ()}


COPIES = {
    "load_weight": CopyTask(4e9, 2e9, 32e9),
    "load_cache": CopyTask(8e9, 2e9, 32e9),
    "load_activation": CopyTask(1e6, 2e9, 32e9),
    "store_cache": CopyTask(1e8, 2e9, 32e9),
    "store_activation": CopyTask(1e6, 2e9, 32e9),
}


def test_the_papers_own_numbers_leave_no_thread_for_loads_and_stores() -> None:
    """12 operators at once, 5 of them loads and stores; 16 threads each; 112 threads."""
    assert 112 - (12 - 5) * 16 < 5
    assert plan_threads(12 - 5, 112, {16: 1.0}, COPIES) is None


def test_threads_follow_bytes_and_every_copy_keeps_one() -> None:
    plan = plan_threads(3, 55, {threads: 8 / threads for threads in range(1, 17)}, COPIES)
    assert plan is not None
    assert plan.threads <= 55
    assert min(plan.copies.values()) >= 1
    assert plan.copies["load_cache"] > plan.copies["load_weight"] > plan.copies["store_cache"]


@settings(max_examples=100)
@given(
    st.integers(1, 6),
    st.integers(1, 60),
    st.dictionaries(st.integers(1, 16), st.floats(0.01, 10), min_size=1),
)
def test_the_plan_is_the_fastest_that_fits(
    operators: int, threads: int, compute: dict[int, float]
) -> None:
    plan = plan_threads(operators, threads, compute, COPIES)
    times = []
    for each, time_s in compute.items():
        free = threads - operators * each
        if free >= 5:
            shares = share_threads(free, {name: task.size_bytes for name, task in COPIES.items()})
            assert sum(shares.values()) == free
            copies = max(task.time_s(shares[name]) for name, task in COPIES.items())
            times.append(max(time_s, copies))
    assert (plan.step_s if plan else None) == min(times, default=None)


# --- tables ---------------------------------------------------------------------------------------


def test_table_1_kv_and_weights_within_two_percent() -> None:
    cells = table1_cells()
    scored = [cell for cell in cells if cell.role is Role.SCORED]
    assert len(scored) == 3
    assert all(abs(cell.error or 1) < 0.02 for cell in scored)
    activations = [cell for cell in cells if cell.cell.startswith("activation")]
    assert all(cell.role is Role.LISTED for cell in activations)
    assert all(cell.predicted == pytest.approx(0.41, abs=0.002) for cell in activations)


def test_one_factor_per_framework_beats_predictors_without_a_model() -> None:
    cells = table3_cells()
    assert sum(cell.role is Role.CALIBRATED for cell in cells) == 3
    for framework in FRAMEWORKS:
        own = [cell for cell in cells if cell.predictor.startswith(f"{framework.name}:")]
        model = [cell for cell in own if cell.role is Role.SCORED]
        number = [cell for cell in own if cell.predictor.endswith("one number")]
        constant = [cell for cell in own if cell.predictor.endswith("a constant")]
        assert len(model) == len(number) == len(constant) == 19
        assert median_error(model) < median_error(number)
        assert median_error(model) < median_error(constant)


def test_the_errors_that_the_page_states() -> None:
    """Predictions of frameworks limited by their implementations: FlexGen and ZeRO are missed."""
    medians = {}
    for framework in FRAMEWORKS:
        errors = [
            abs(cell.error or 0)
            for cell in table3_cells()
            if cell.role is Role.SCORED and cell.predictor.startswith(f"{framework.name}:")
        ]
        medians[framework.name] = statistics.median(errors)
    expected = {"FlexGen": 0.514, "ZeRO-Inference": 0.904, "LM-Offload": 0.157}
    assert medians == pytest.approx(expected, abs=0.001)
    assert factors() == pytest.approx(
        {"FlexGen": 0.0197, "ZeRO-Inference": 0.615, "LM-Offload": 0.144}, rel=0.01
    )


def test_figure_3_is_additive_where_equation_2_has_a_maximum() -> None:
    bars = {
        cell.cell: cell for cell in figure3_cells() if cell.role in (Role.SCORED, Role.CALIBRATED)
    }
    published = {name: 1 / (cell.published or 1) for name, cell in bars.items()}
    none, weights, kv, both = (
        published[f"{name} without attention offload"]
        for name in ("no quant", "quant weights", "quant kv", "quant both")
    )
    assert weights + kv - none == pytest.approx(both, rel=0.05)
    assert (bars["quant both without attention offload"].error or 0) > 0.8


def test_figure_3_takes_no_number_but_table_3s_at_128_tokens() -> None:
    """The model does not beat FlexGen's one number there, as the page states."""
    cells = figure3_cells()
    (calibrated,) = (cell for cell in cells if cell.role is Role.CALIBRATED)
    assert calibrated.cell == "no quant with attention offload"
    assert calibrated.published == calibration_cells()["FlexGen"] == 41
    assert calibrated.predicted == pytest.approx(41, rel=0.001)
    model = [cell for cell in cells if cell.role is Role.SCORED]
    number = [cell for cell in cells if cell.predictor == "FlexGen: one number"]
    same = [cell for cell in cells if cell.predictor == "FlexGen: a constant"]
    assert len(model) == len(number) == len(same) == 5
    errors = [round(cell.error or 0, 2) for cell in model]
    assert errors == [0.28, -0.43, -0.25, -0.14, 0.85]
    medians = [median_error(each) for each in (model, number, same)]
    assert medians == pytest.approx([0.281, 0.255, 0.678], abs=0.001)


def test_efficient_kernels_would_be_faster_than_every_bar_of_figure_3() -> None:
    cells = [cell for cell in figure3_cells() if cell.role is Role.WHAT_IF]
    assert len(cells) == 6
    assert all((cell.error or 0) > 2 for cell in cells)
