"""Whole layers or MLPs alone in host memory: by what a request, and many, are predicted to take."""

from dataclasses import replace

import pytest

from tandem.engine.sizing.memory_plan import Capacities, plan_memory
from tandem.engine.sizing.mlp_choice import PlacementTimes
from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.models.catalogue import plannable_spec
from tandem.plan.weights import homes_by_layer, resident_experts
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import map_rows
from tandem.spec.units import GIB
from tandem.spec.weight_format import WeightFormat

BF16 = Precision.uniform(DType.BFLOAT16)
CARD = load_hardware("rtx4090")
MOE, DENSE = plannable_spec("qwen3-30b-a3b"), plannable_spec("llama-3.1-8b")
LARGE = plannable_spec("llama-3.1-70b")


def homes(
    spec: ModelSpec, hardware: HardwareSpec, rows: int, gib: int, host_gib: int = 100
) -> set[str]:
    config = EngineConfig("m", max_num_seqs=rows, max_model_len=4096)
    capacities = Capacities(gib * GIB, host_gib * GIB, real=False)
    memory = plan_memory(config, spec, BF16, capacities, hardware=hardware)
    return set(homes_by_layer(memory.plan.weights).values())


def test_experts_leave_the_accelerator_and_attention_stays() -> None:
    assert homes(MOE, CARD, rows=1, gib=21) == {"host-mlp"}


@pytest.mark.parametrize("gib", [12, 21, 40])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_a_part_of_every_mixture_stays_and_the_rest_comes_or_is_the_cpu_s(
    rows: int, gib: int
) -> None:
    """Both sides work at once then, and slots are smaller; whole mixtures are no faster."""
    config = EngineConfig("m", max_num_seqs=rows, max_model_len=4096)
    capacities = Capacities(gib * GIB, 100 * GIB, real=False)
    plan = plan_memory(config, MOE, BF16, capacities, hardware=CARD).plan
    assert set(resident_experts(plan.weights)) == set(range(48))
    whole = plan_memory(
        replace(config, host_layers="mlp"), MOE, BF16, capacities, hardware=CARD
    ).plan
    assert not resident_experts(whole.weights)
    times = PlacementTimes(MOE, BF16, CARD, rows, 2048)
    for tokens in (1, 8, 64, 512, 2048):
        least_s = times.sweep_s(plan.weights, tokens)
        assert least_s <= 1.02 * times.sweep_s(whole.weights, tokens)


def test_without_room_for_mlps_on_their_way_the_cpu_computes_them() -> None:
    sizes = WeightSizes.of(MOE, BF16)
    tight = sizes.least_device_bytes("cpu-mlp") + GIB  # two slots for experts are more
    config = EngineConfig("m", max_num_seqs=1, max_model_len=1024, max_num_batched_tokens=256)
    capacities = Capacities(tight, 100 * GIB, real=False)
    memory = plan_memory(config, MOE, BF16, capacities, hardware=CARD)
    assert set(homes_by_layer(memory.plan.weights).values()) <= {"resident", "cpu-mlp"}


@pytest.mark.parametrize(
    ("spec", "gib", "host_gib"),
    [(MOE, 12, 100), (DENSE, 6, 100), (LARGE, 20, 100), (LARGE, 20, 24)],
)
def test_the_cpu_computes_no_floats_of_a_byte(spec: ModelSpec, gib: int, host_gib: int) -> None:
    """Its kernels read none: what would be its, or either's, comes to the accelerator."""
    formats = {name: WeightFormat(8, 32, floats=True) for name in map_rows(spec)}
    config = EngineConfig("m", max_num_seqs=1, max_model_len=4096)
    capacities = Capacities(gib * GIB, host_gib * GIB, real=False)
    disk = replace(CARD, host=replace(CARD.host, disk_bytes_per_s=3e9))
    kept = replace(BF16, quantized=formats)
    plan = plan_memory(config, spec, kept, capacities, hardware=disk).plan
    found = set(homes_by_layer(plan.weights).values())
    assert found <= {"resident", "streamed", "disk_streamed"}
    assert found != {"resident"}
    assert plan.cpu_rules == ()


def test_a_host_that_hardly_computes_streams() -> None:
    weak = replace(CARD, host=replace(CARD.host, flops_per_s=1e9))
    assert homes(MOE, weak, rows=1, gib=22) <= {"resident", "host", "host-mlp"}
    config = EngineConfig("m", max_num_seqs=1, max_model_len=4096)
    capacities = Capacities(22 * GIB, 100 * GIB, real=False)
    rules = plan_memory(config, MOE, BF16, capacities, hardware=weak).plan.cpu_rules
    assert all(rule.max_tokens == 1 for rule in rules)  # a token's few experts at most


@pytest.mark.parametrize(
    ("disk", "flops", "chosen"),
    [
        (7e9, 4e13, "disk-cpu"),  # two slots' worth of layers need not be read
        (7e9, 1e11, "disk_streamed"),  # prompts would wait for the cores
        (None, 4e13, "disk_streamed"),
    ],
)
def test_who_computes_layers_on_disk_is_weighed_where_the_disk_is_known(
    disk: float | None, flops: float, chosen: str
) -> None:
    host = replace(CARD.host, disk_bytes_per_s=disk, flops_per_s=flops)
    found = homes(LARGE, replace(CARD, host=host), rows=1, gib=20, host_gib=32)
    assert found & {"disk-cpu", "disk_streamed"} == {chosen}


def test_layers_on_disk_are_the_cpu_s_where_the_accelerator_has_no_room_for_two() -> None:
    sizes = WeightSizes.of(LARGE, BF16)
    gib = (sizes.outside + 2 * sizes.layer) // GIB
    assert homes(LARGE, CARD, rows=1, gib=gib, host_gib=32) <= {"resident", "cpu", "disk-cpu"}


@pytest.mark.parametrize("spec", [MOE, DENSE, LARGE], ids=["moe", "dense", "large"])
@pytest.mark.parametrize("rows", [1, 64])
def test_embeddings_leave_where_that_is_predicted_to_pay(spec: ModelSpec, rows: int) -> None:
    config = EngineConfig("m", max_num_seqs=rows, max_model_len=4096)
    capacities = Capacities(12 * GIB, 200 * GIB, real=False)
    plan = plan_memory(config, spec, BF16, capacities, hardware=CARD).plan
    assert plan.embedding == "host"
    times = PlacementTimes(spec, BF16, CARD, rows, 2048)
    tied = replace(spec, tie_embeddings=True, vocab_size=2 * spec.vocab_size)
    beside = plan_memory(config, tied, BF16, capacities, hardware=CARD).plan
    assert times.weighed_s2(plan.weights) < times.weighed_s2(beside.weights)


def test_what_fits_stays() -> None:
    assert homes(DENSE, CARD, rows=1, gib=22) == {"resident"}


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("spec", [MOE, DENSE], ids=["moe", "dense"])
@pytest.mark.parametrize("host_flops", [1e11, 4e12])
def test_the_choice_is_never_predicted_to_be_slower_for_both(
    spec: ModelSpec, rows: int, host_flops: float
) -> None:
    hardware = replace(CARD, host=replace(CARD.host, flops_per_s=host_flops))
    times = PlacementTimes(spec, BF16, hardware, rows, 2048)
    sizes = WeightSizes.of(spec, BF16)
    whole, mlps = sizes.spread(sizes.layers // 4 * 2, "host"), sizes.spread(20, "cpu-mlp")
    chosen = times.choose(whole, mlps)
    other = mlps if chosen == whole else whole
    faster = [times.requests_s(chosen, n) <= 1.03 * times.requests_s(other, n) for n in (1, rows)]
    assert any(faster)
