"""Offline plans on the paced emulator, in virtual time: what every lever costs, told by head."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.paced import TINY
from tests.support.blocks import small_plan

from tandem.cost.rates import accelerator_rates
from tandem.cost.stage import stage_cost
from tandem.engine.building.paced_blocks import PacedBlocks, build_paced_blocks
from tandem.engine.building.paced_machine import PacedOptions
from tandem.engine.building.paced_types import block_types
from tandem.engine.sizing.plan_options import engine_config
from tandem.memory.page import KVPageSpec
from tandem.plan.disk_slots import slots_bytes
from tandem.plan.offline import OfflinePlan
from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.plan.program import OpKind, Part
from tandem.plan.weights import Home
from tandem.runtime.paced.host_truth import HostTruth
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.report import PacedReport
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.kv_type import CodeType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.operations import keys_values
from tandem.spec.parameters import layer_matrix_bytes, layer_matrix_parameters, mlp_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

SMALL = load_hardware("small")
WIDE = replace(
    TINY,
    hidden_size=2048,
    num_layers=6,
    num_heads=16,
    num_kv_heads=16,
    head_dim=128,
    intermediate_size=5632,
    max_positions=4096,
)
PAGE = KVPageSpec.of_model(WIDE, dtype=DType.FLOAT16, block_size=64)
TOKEN_BYTES = PAGE.bytes_per_block_layer / PAGE.block_size
LAYER_BYTES = layer_matrix_parameters(WIDE) * DType.FLOAT16.size_bytes
LINK = SMALL.link.h2d_bytes_per_s
PROMPT, BLOCKS = 1000, 16
RESIDENT: tuple[Home, ...] = ("resident",) * 6
STREAMED: tuple[Home, ...] = ("streamed",) * 6
ATTEND_S = 4e-3
# of which there is enough for the link and for a CPU that is as fast as these tests have it
MEMORY = replace(SMALL, host=replace(SMALL.host, shared_memory_bandwidth_bytes_per_s=400e9))


def host_s(task: HostTask) -> float:
    return ATTEND_S if task.entry.op.kind is OpKind.ATTEND else 1e-5


def plan_of(homes: tuple[Home, ...], **changes: Any) -> OfflinePlan:
    given = {
        "kv_dtype": "float16",
        "host_kv_dtype": "float16",
        "block_size": 64,
        "row_blocks": 17,
        "max_model_len": 1088,
        "prefill_tokens": 1024,
    }
    return small_plan(homes, **(given | changes))


class Run:
    """An engine that executes a plan; every step is checked.

    Args:
        late_s: that the scheduler takes between two programs.
    """

    def __init__(
        self,
        folder: Path,
        plan: OfflinePlan,
        change: Perturbation | None = None,
        late_s: float = 0.0,
        host: Callable[[HostTask], float] = host_s,
        hardware: HardwareSpec = SMALL,
        *,
        virtual: bool = True,
    ) -> None:
        path = folder / "plan.json"
        kept = "auto" if plan.host_kv_dtype == plan.kv_dtype else plan.host_kv_dtype
        types = str(block_types(plan, WIDE, DType.FLOAT16).precision)
        path.write_text(
            PlanFile(
                "wide", PlannedModel.of(WIDE), "small", False, "float16", plan.kv_dtype, kept,
                plan.quantization, types, plan,
            ).to_json()
        )  # fmt: skip
        self.clock, self._late_s = VirtualClock(), late_s
        self.engine: PacedBlocks = build_paced_blocks(
            engine_config({"model": "wide", "plan": str(path), "gpu_memory": "6GB"}),
            WIDE,
            hardware,
            PacedOptions(cache_bytes=1, perturbation=change or Perturbation()),
            clock=self.clock,
            pool=VirtualPool(host) if virtual else None,
            check=True,
        )
        self._number = 0

    def add(self, count: int, *, prompt: int = PROMPT, out: int = 40) -> None:
        for _ in range(count):
            self._number += 1
            params = SamplingParams(max_tokens=out, ignore_eos=True)
            given = EngineRequest(str(self._number), tuple(range(1, 2)) * prompt, params)
            self.engine.core.add_request(given)

    def step(self) -> int:
        """Of the next program: tokens."""
        tokens = sum(len(output.token_ids) for output in self.engine.core.step())
        self.clock.time_s += self._late_s
        return tokens

    def passes(self, count: int, rows: int) -> tuple[float, PacedReport]:
        """Seconds of a pass in the mean of `count` after the first few, each of so many rows."""
        for _ in range(3):
            assert self.step() == rows
        begin_s = self.clock.time_s
        self.engine.executor.begin_window()
        for _ in range(count):
            assert self.step() == rows
        return (self.clock.time_s - begin_s) / count, self.engine.executor.report()


def test_streamed_weights_and_kv_take_as_long_as_their_bytes(tmp_path: Path) -> None:
    for homes, rows in ((STREAMED, {"resident_rows": 2}), (RESIDENT, {"streamed_rows": 4})):
        plan = plan_of(homes, **rows)
        run = Run(tmp_path, plan)
        run.add(plan.block_rows)
        pass_s, report = run.passes(10, plan.block_rows)
        kv = plan.batches * plan.streamed_rows * BLOCKS * PAGE.bytes_per_block_layer * 6
        size = kv + (6 * LAYER_BYTES if homes is STREAMED else 0)
        assert size / LINK <= pass_s <= 1.03 * size / LINK
        assert report.brought_bytes == pytest.approx(10 * size)
        assert report.h2d_busy + report.weights_busy > 0.97


@pytest.mark.parametrize("batches", [1, 3])
def test_mlps_on_the_cpu_are_not_brought_and_hide_what_the_accelerator_does(
    batches: int, tmp_path: Path
) -> None:
    """Four of six: the other two stay in the slots."""
    apart: tuple[Home, ...] = ("host-mlp",) * 6
    mlp_s = mlp_matrix_bytes(WIDE, Precision.uniform(DType.FLOAT16)) / LINK

    def host(task: HostTask) -> float:
        return mlp_s / 4 if task.entry.op.part is Part.MLP else 1e-5

    passes: list[tuple[float, PacedReport]] = []
    for computed in ((), (2, 3, 4, 5)):
        plan = plan_of(apart, batches=batches, resident_rows=2, cpu_mlps=computed)
        run = Run(tmp_path, plan, host=host)
        run.add(plan.block_rows)
        passes.append(run.passes(10, plan.block_rows))
    (brought_s, brought), (pass_s, report) = passes
    assert 6 * mlp_s <= brought_s <= 1.03 * 6 * mlp_s
    assert brought.cpu_busy == 0
    hidden_s = 4 * batches * mlp_s / 4
    activations = 4 * batches * 2 * WIDE.hidden_size * 2
    assert report.brought_bytes == pytest.approx(10 * activations)
    assert report.cpu_busy * pass_s == pytest.approx(hidden_s, rel=0.02)
    one_after_the_other_s = hidden_s + report.accel_busy * pass_s
    if batches == 1:
        assert one_after_the_other_s <= pass_s < 1.05 * one_after_the_other_s
    else:  # but for the layers that the accelerator computes
        assert hidden_s < pass_s < 0.95 * one_after_the_other_s
    assert pass_s < 0.8 * brought_s


@pytest.mark.parametrize("home", ["host-mlp", "streamed"])
def test_columns_on_the_cpu_are_not_brought_and_computed_meanwhile(
    home: Home, tmp_path: Path
) -> None:
    """A quarter of each MLP, by a CPU that takes half as long for it as the link for the rest."""
    mlp = mlp_matrix_bytes(WIDE, Precision.uniform(DType.FLOAT16))
    brought = (mlp if home == "host-mlp" else LAYER_BYTES) - mlp / 4
    rest_s, batches = brought / LINK, 3

    def host(task: HostTask) -> float:
        return rest_s / 2 / batches if task.entry.op.part is Part.COLUMNS else 1e-5

    plan = plan_of(
        (home,) * 6, batches=batches, resident_rows=2, cpu_columns=WIDE.intermediate_size // 4
    )
    run = Run(tmp_path, plan, host=host, hardware=MEMORY)
    run.add(plan.block_rows)
    pass_s, report = run.passes(10, plan.block_rows)
    activations = 6 * plan.block_rows * WIDE.hidden_size * 2
    assert report.brought_bytes == pytest.approx(10 * (6 * brought + activations))
    assert 6 * rest_s <= pass_s < 1.05 * 6 * rest_s
    assert report.weights_busy > 0.95
    assert 0.45 < report.cpu_busy < 0.55


def test_the_link_and_the_cpu_have_no_more_than_the_memory_gives(tmp_path: Path) -> None:
    """A CPU that reads a quarter of each MLP as fast as memory gives, beside loads of the rest:
    each alone takes less than both together.
    """
    columns, pool = WIDE.intermediate_size // 4, SMALL.host.pool_bytes_per_s
    plan = plan_of(("host-mlp",) * 6, batches=3, resident_rows=2, cpu_columns=columns)
    mlp = mlp_matrix_bytes(WIDE, Precision.uniform(DType.FLOAT16))

    def host(task: HostTask) -> float:
        return mlp / 4 / pool if task.entry.op.part is Part.COLUMNS else 1e-9

    run = Run(tmp_path, plan, host=host)
    run.add(plan.block_rows)
    pass_s, report = run.passes(10, plan.block_rows)
    read = 6 * 3 * mlp / 4
    assert pass_s * pool >= report.brought_bytes / 10 + read
    assert pass_s < 1.1 * (report.brought_bytes / 10 + read) / pool
    assert read / pool < 0.8 * pass_s
    assert report.brought_bytes / 10 / LINK < 0.8 * pass_s


@pytest.mark.parametrize("batches", [1, 3])
def test_attention_s_maps_on_the_cpu_are_not_brought_and_the_link_goes_on(
    batches: int, tmp_path: Path
) -> None:
    """Beside half of each MLP: the CPU has nearly as much to do as the link."""
    mlp = mlp_matrix_bytes(WIDE, Precision.uniform(DType.FLOAT16))
    rest_s, stages = mlp / 2 / LINK, (Part.PRE, Part.OUTPUT, Part.COLUMNS)

    def host(task: HostTask) -> float:
        return 0.85 * rest_s / batches / 3 if task.entry.op.part in stages else 1e-6

    plan = plan_of(
        ("streamed",) * 6, batches=batches, cpu_rows=2, cpu_attention_maps=True,
        cpu_columns=WIDE.intermediate_size // 2,
    )  # fmt: skip
    run = Run(tmp_path, plan, host=host, hardware=MEMORY)
    run.add(plan.block_rows)
    pass_s, report = run.passes(10, plan.block_rows)
    residual = plan.block_rows * WIDE.hidden_size * 2
    up = 6 * residual + residual  # for the accelerator's columns, and the last layer's end
    assert report.brought_bytes == pytest.approx(10 * (6 * mlp / 2 + up))
    assert 6 * rest_s <= pass_s < 1.1 * 6 * rest_s
    assert report.weights_busy > 0.91
    assert report.cpu_busy > 0.8


@pytest.mark.parametrize("batches", [1, 3])
def test_layers_on_the_cpu_are_not_brought_but_for_what_the_accelerator_attends_with(
    batches: int, tmp_path: Path
) -> None:
    """Four of six: the other two stay in the slots."""
    homes: tuple[Home, ...] = ("host",) * 6
    stage_s = LAYER_BYTES / LINK / 8

    def host(task: HostTask) -> float:
        return stage_s if task.entry.op.kind is OpKind.STAGE else 1e-6

    for kv in ("resident_rows", "cpu_rows"):
        plan = plan_of(homes, batches=batches, cpu_layers=(2, 3, 4, 5), **{kv: 2})
        run = Run(tmp_path, plan, host=host)
        run.add(plan.block_rows)
        pass_s, report = run.passes(10, plan.block_rows)
        residual = 2 * batches * WIDE.hidden_size * 2
        crossing = 4 * 3 * residual + residual  # q, k and v of each layer, and the last one's end
        if kv == "cpu_rows":  # of the first two layers, attention's result in float32
            crossing = 2 * (2 * residual + 2 * batches * WIDE.num_heads * 4) + residual
        assert report.brought_bytes == pytest.approx(10 * crossing)
        hidden_s = 4 * 2 * batches * stage_s
        assert report.cpu_busy * pass_s == pytest.approx(hidden_s, rel=0.02)
        assert hidden_s < pass_s < 1.1 * (hidden_s + report.accel_busy * pass_s)


def test_layers_from_disk_take_as_long_as_their_bytes(tmp_path: Path) -> None:
    disk = LINK / 3
    reading = replace(SMALL, host=replace(SMALL.host, disk_bytes_per_s=disk))
    on_disk: Home = "disk_streamed"
    homes: tuple[Home, ...] = (on_disk, on_disk, on_disk, on_disk, "streamed", "resident")
    plan = plan_of(homes, resident_rows=1, streamed_rows=1)
    run = Run(tmp_path, plan, hardware=reading)
    ledger = {(e.location, e.label): e.predicted_bytes for e in run.engine.memory.ledger.entries}
    assert ledger["disk", "weights"] == 4 * LAYER_BYTES
    assert ledger["host", "weights"] == LAYER_BYTES
    assert ledger["host", "weight slots"] == slots_bytes(LAYER_BYTES)
    run.add(plan.block_rows)
    pass_s, _ = run.passes(10, plan.block_rows)
    reads_s = 4 * LAYER_BYTES / disk
    assert reads_s <= pass_s <= 1.03 * reads_s
    with pytest.raises(ConfigError, match=r"whose rate the description of .* lacks"):
        Run(tmp_path, plan)


def test_both_share_the_link(tmp_path: Path) -> None:
    plan = plan_of(STREAMED, streamed_rows=3)
    run = Run(tmp_path, plan)
    run.add(plan.block_rows)
    pass_s, _ = run.passes(10, 6)
    size = 6 * (LAYER_BYTES + 6 * BLOCKS * PAGE.bytes_per_block_layer)
    assert size / LINK <= pass_s <= 1.05 * size / LINK


def test_a_recomputed_prefix_halves_its_bytes_and_costs_its_products(tmp_path: Path) -> None:
    made = 512
    plan = plan_of(RESIDENT, streamed_rows=4, recomputed_tokens=made)
    run = Run(tmp_path, plan)
    run.add(plan.block_rows)
    run.passes(3, 8)  # copies ahead end at the same place of every pass from then on
    pass_s, report = run.passes(10, 8)
    entries = plan.batches * 4 * made
    left = plan.batches * 4 * (BLOCKS - made // 64) * PAGE.bytes_per_block_layer
    activations = entries * WIDE.hidden_size * 2
    assert activations == entries * TOKEN_BYTES / 2
    assert report.brought_bytes == pytest.approx(10 * 6 * (left + activations))
    products = stage_cost(
        keys_values(layer_operations(WIDE)), 4 * made, DType.FLOAT16,
        accelerator_rates(SMALL, DType.FLOAT16),
    )  # fmt: skip
    least_s = 6 * plan.batches * products.total_s
    assert report.accel_busy * pass_s >= least_s
    assert pass_s >= max(least_s, 6 * (left + activations) / LINK)


def test_attention_on_the_cpu_takes_what_it_is_stamped_with(tmp_path: Path) -> None:
    plan = plan_of(RESIDENT, cpu_rows=4)
    run = Run(tmp_path, plan)
    run.add(plan.block_rows)
    pass_s, report = run.passes(10, 8)
    chain_s = 6 * plan.batches * (ATTEND_S + 1e-5)
    assert chain_s < pass_s < 1.35 * chain_s  # a layer's way there and back is not hidden
    assert report.cpu_busy == pytest.approx(chain_s / pass_s, rel=0.01)


@pytest.mark.parametrize("rate", [1.0, 3.0])
def test_copies_delay_the_cpu_where_both_ask_for_more_than_the_memory_gives(
    tmp_path: Path, rate: float
) -> None:
    """Mixed batches: what crosses the link meanwhile is taken from the host's memory.

    Args:
        rate: of the memory, over what attention reads.
    """
    plan = plan_of(RESIDENT, cpu_rows=2, streamed_rows=2)
    read = 2 * PROMPT * PAGE.bytes_per_block_layer / PAGE.block_size
    pool = rate * read / ATTEND_S
    hardware = replace(SMALL, host=replace(SMALL.host, memory_bandwidth_bytes_per_s=pool))
    run = Run(tmp_path, plan, hardware=hardware)
    run.add(plan.block_rows)
    pass_s, report = run.passes(10, 8)
    moved = plan.batches * 2 * BLOCKS * PAGE.bytes_per_block_layer * 6
    busy_s, alone_s = report.cpu_busy * pass_s, 6 * plan.batches * (ATTEND_S + 1e-5)
    if rate > 1:
        assert busy_s == pytest.approx(alone_s, rel=0.02)
    else:
        assert alone_s * 1.05 < busy_s < alone_s + 1.2 * moved / pool


def test_prompts_take_their_products_and_drain_behind_them(tmp_path: Path) -> None:
    took: list[float] = []
    for rows in ({"resident_rows": 4}, {"streamed_rows": 4}):
        plan = plan_of(RESIDENT, **rows)
        run = Run(tmp_path, plan)
        run.add(plan.block_rows)
        assert run.step() == plan.block_rows
        took.append(run.clock.time_s)
    flops = 2 * layer_matrix_parameters(WIDE) * 6 * 8 * PROMPT
    least_s = flops / accelerator_rates(SMALL, DType.FLOAT16).flops_per_s
    assert least_s < took[0] < 1.3 * least_s
    drained = 8 * BLOCKS * PAGE.bytes_per_block_layer * 6 / SMALL.link.d2h_bytes_per_s
    assert took[1] >= drained
    assert took[0] <= took[1] <= took[0] + drained


def test_requests_come_and_go_and_places_stay_empty(tmp_path: Path) -> None:
    plan = plan_of(STREAMED, batches=3, resident_rows=1, streamed_rows=1, cpu_rows=1)
    run = Run(tmp_path, plan)
    run.add(5, prompt=70, out=3)  # the last batch has room for more
    run.add(1, prompt=200, out=9)
    tokens = 0
    while run.engine.core.has_work():
        tokens += run.step()
    assert tokens == 5 * 3 + 9
    for pool in run.engine.core.stats().tiers:
        assert pool.held_blocks == 0
    run.add(1, prompt=64, out=2)  # the engine goes on after it was empty
    while run.engine.core.has_work():
        tokens += run.step()
    assert tokens == 5 * 3 + 9 + 2


def test_the_truth_is_found_out_by_running_only(tmp_path: Path) -> None:
    plan = plan_of(STREAMED, streamed_rows=2, resident_rows=2)

    def pass_s(change: Perturbation) -> float:
        run = Run(tmp_path, plan, change)
        run.add(plan.block_rows)
        return run.passes(5, plan.block_rows)[0]

    told, once, again = map(
        pass_s, (Perturbation(), Perturbation(5, 0.3, 64), Perturbation(5, 0.3, 64))
    )
    assert once == again
    assert abs(once / told - 1) > 0.01


def test_a_late_scheduler_makes_a_run_invalid(tmp_path: Path) -> None:
    plan = plan_of(RESIDENT, resident_rows=4)
    for late_s, valid in ((0.0, True), (1e-3, False)):
        run = Run(tmp_path, plan, late_s=late_s)
        run.add(plan.block_rows)
        _, report = run.passes(5, plan.block_rows)
        assert report.valid == valid
        assert valid or "submissions" in report.reasons[0]


def coded(plan: OfflinePlan, layers: str = "all") -> OfflinePlan:
    return replace(plan, quantized_layers=layers, quantization="int4:128")


def test_layers_in_few_bits_take_fewer_bytes_and_a_kernel_that_dequantizes(tmp_path: Path) -> None:
    """With few rows they are multiplied by codes, with more a kernel dequantizes them before."""
    precision = block_types(
        coded(plan_of(STREAMED, resident_rows=2)), WIDE, DType.FLOAT16
    ).precision
    layer = layer_matrix_bytes(WIDE, precision)
    assert layer < LAYER_BYTES / 3.5
    busy: list[float] = []
    for rows in (2, 64):
        for layers in ("none", "all"):
            plan = plan_of(RESIDENT, batches=1, resident_rows=rows)
            run = Run(tmp_path, plan if layers == "none" else coded(plan))
            run.add(plan.block_rows, prompt=70)
            pass_s, report = run.passes(5, plan.block_rows)
            busy.append(report.accel_busy * pass_s)
    assert busy[1] < busy[0]
    run = Run(tmp_path, coded(plan_of(STREAMED, resident_rows=2)))
    run.add(4)
    pass_s, report = run.passes(10, 4)
    assert report.brought_bytes == pytest.approx(10 * 6 * layer)
    assert pass_s >= 6 * layer / LINK
    many = replace(SMALL, accelerator=replace(SMALL.accelerator, compute_capability=7.5))
    plan = coded(plan_of(RESIDENT, batches=1, resident_rows=64))
    run = Run(tmp_path, plan, hardware=many)  # which multiplies no more than four rows by codes
    run.add(64, prompt=70)
    apart_s, report = run.passes(5, 64)
    moved = 6 * (layer + LAYER_BYTES)
    least_s = moved / accelerator_rates(SMALL, DType.FLOAT16).bytes_per_s
    assert report.accel_busy * apart_s - busy[3] >= 0.9 * least_s


def test_streamed_layers_alone_are_in_few_bits(tmp_path: Path) -> None:
    homes: tuple[Home, ...] = ("streamed", "resident") * 3
    busy: list[float] = []
    brought: list[float] = []
    for layers in ("none", "streamed", "all"):
        plan = plan_of(homes, batches=1, resident_rows=2)
        run = Run(tmp_path, plan if layers == "none" else coded(plan, layers))
        run.add(plan.block_rows)
        pass_s, report = run.passes(5, plan.block_rows)
        busy.append(report.accel_busy * pass_s)
        brought.append(report.brought_bytes)
    assert brought[0] > 3.5 * brought[1]
    assert brought[1] == brought[2]
    assert busy[0] - busy[1] == pytest.approx(busy[1] - busy[2], rel=0.05)  # three layers each
    assert busy[1] < 0.9 * busy[0]


def test_streamed_kv_in_few_bits_takes_its_bytes_and_no_pass_of_its_own(tmp_path: Path) -> None:
    kept = replace(PAGE, dtype=CodeType.INT4)
    busy: list[float] = []
    for kind in ("float16", "int4"):
        run = Run(tmp_path, plan_of(RESIDENT, streamed_rows=4, host_kv_dtype=kind))
        run.add(8)
        pass_s, report = run.passes(10, 8)
        busy.append(report.accel_busy * pass_s)
        page = kept if kind == "int4" else PAGE
        size = 2 * 4 * BLOCKS * page.bytes_per_block_layer * 6
        assert report.brought_bytes == pytest.approx(10 * size)
    assert 3.4 * kept.bytes_per_block_layer < PAGE.bytes_per_block_layer
    assert busy[1] == pytest.approx(busy[0], rel=0.02)  # what is appended is quantized


def test_kv_in_few_bits_on_the_accelerator_takes_its_bytes_of_attention(tmp_path: Path) -> None:
    """Of rows that stay; of those that pass, what crosses the link."""
    busy: dict[tuple[str, int], float] = {}
    for kind, rows in product(("float16", "int4"), (2, 16)):
        changes = {"kv_dtype": kind, "host_kv_dtype": kind, "row_blocks": 34}
        run = Run(tmp_path, plan_of(RESIDENT, batches=1, resident_rows=rows, **changes))
        run.add(rows)
        pass_s, report = run.passes(5, rows)
        busy[kind, rows] = report.accel_busy * pass_s
    kept = replace(PAGE, dtype=CodeType.INT4)
    plain_s, few_s = (busy[kind, 16] - busy[kind, 2] for kind in ("float16", "int4"))
    less = 14 * 6 * PROMPT * (1 - kept.bytes_per_block / PAGE.bytes_per_block) * TOKEN_BYTES
    rate = accelerator_rates(SMALL, DType.FLOAT16).bytes_per_s
    assert plain_s - few_s == pytest.approx(less / rate, rel=0.1)
    mixed = {"resident_rows": 2, "streamed_rows": 2, "kv_dtype": "int4", "host_kv_dtype": "int4"}
    run = Run(tmp_path, plan_of(RESIDENT, **mixed))
    run.add(8)
    _, report = run.passes(10, 8)
    size = 2 * 2 * BLOCKS * kept.bytes_per_block_layer * 6
    assert report.brought_bytes == pytest.approx(10 * size)


def test_attention_over_codes_takes_arithmetic_that_reading_does_not_hide(tmp_path: Path) -> None:
    """On cores that are slow beside their memory; on others it is the bytes."""
    plans = [
        plan_of(RESIDENT, batches=1, cpu_rows=4, host_kv_dtype=kind) for kind in ("float16", "int4")
    ]
    for flops, least, most in ((1e15, 3.4, 3.7), (1e9, 0.3, 0.4)):
        facts = replace(SMALL.host, flops_per_s=flops)
        busy: list[float] = []
        for plan in plans:
            types = block_types(plan, WIDE, DType.FLOAT16)
            page = replace(PAGE, host_dtype=types.precision.host_kv)
            truth = HostTruth(WIDE, page, facts, Perturbation(), types=types)
            run = Run(tmp_path, plan, host=truth.duration_s)
            run.add(4)
            pass_s, report = run.passes(5, 4)
            busy.append(report.cpu_busy * pass_s)
        assert least < busy[0] / busy[1] < most


def test_what_is_not_executed_is_refused(tmp_path: Path) -> None:
    few = plan_of(RESIDENT, streamed_rows=2, host_kv_dtype="int8")
    with pytest.raises(ConfigError, match="few bits are paced in virtual time only"):
        Run(tmp_path, few, virtual=False)
    with pytest.raises(ConfigError, match="KV on the host in fp8 cannot be paced"):
        Run(tmp_path, plan_of(RESIDENT, streamed_rows=2, host_kv_dtype="fp8"))
    every = {"kv_dtype": "fp8", "host_kv_dtype": "fp8"}
    with pytest.raises(ConfigError, match="KV on the accelerator in fp8 cannot be paced"):
        Run(tmp_path, plan_of(RESIDENT, resident_rows=2, **every))
    all_few = {"kv_dtype": "int8", "host_kv_dtype": "int8"}
    with pytest.raises(ConfigError, match="few bits are paced in virtual time only"):
        Run(tmp_path, plan_of(RESIDENT, resident_rows=2, **all_few), virtual=False)
    odd = replace(coded(plan_of(RESIDENT, resident_rows=2)), quantization="int4:128 and int8:128")
    with pytest.raises(ConfigError, match="weights in int4:128 and int8:128 cannot be paced"):
        Run(tmp_path, odd)
