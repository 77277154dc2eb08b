"""Sizes and refusals of the memory plan, without a model."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.engine.small_model import FLOAT32, SPEC

from tandem.engine.building.scheduler_options import prices_of
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import MemoryPlan, plan_memory
from tandem.engine.sizing.weight_notes import void_host_layers
from tandem.memory.growth_reserve import growth_reserve
from tandem.memory.scratch import KERNEL_BYTES, page_table_bytes
from tandem.plan.online import OnlinePlan
from tandem.plan.weights import as_runs, disk_layers, layers_at, streamed_layers
from tandem.spec.config import EngineConfig, HostLayers
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.kv_type import CodeType
from tandem.spec.model import ExpertSpec
from tandem.spec.parameters import layer_matrix_parameters, weight_bytes
from tandem.spec.units import GIB, MIB

CONFIG = EngineConfig("m", max_num_seqs=4, max_num_batched_tokens=64)
WEIGHTS = weight_bytes(SPEC, DType.FLOAT32)
HYBRID = Capacities(8 * MIB, 64 * MIB, real=False)


def plan(
    config: EngineConfig = CONFIG,
    capacities: Capacities = HYBRID,
    hardware: HardwareSpec | None = None,
) -> MemoryPlan:
    return plan_memory(config, SPEC, FLOAT32, capacities, hardware=hardware)


def test_what_is_reserved_fits_in_every_memory() -> None:
    memory = plan()
    for place in ("device", "host"):
        assert memory.ledger.budget(place).left_bytes >= 0
    left = memory.ledger.budget("device").left_bytes
    assert left < memory.page.bytes_per_block, "a whole block was left unused"


def test_pools_are_no_larger_than_all_sequences_at_full_length_and_the_reserve() -> None:
    memory = plan(capacities=Capacities(8 * GIB, 8 * GIB, real=False))
    running = CONFIG.max_num_seqs - 1
    most = CONFIG.max_num_seqs * memory.page.blocks_for_tokens(SPEC.max_positions)
    assert memory.plan.host_blocks == most  # nothing is kept free there
    device_blocks = memory.plan.device_blocks
    assert device_blocks == most + growth_reserve(running, device_blocks) == most + running


def test_each_tier_has_pages_of_its_own_type() -> None:
    mixed = replace(FLOAT32, host_kv=CodeType.INT8)
    plain = plan()
    memory = plan_memory(CONFIG, SPEC, mixed, HYBRID)
    assert memory.plan.device_blocks == plain.plan.device_blocks
    # 16 elements of 4 bytes, or 32 codes and 4 bytes of a scale and a minimum
    block_bytes = memory.page.bytes_per_block * 36 // 64
    pools = {e.location: e.predicted_bytes for e in memory.ledger.entries if e.label == "kv pool"}
    assert pools["host"] == memory.plan.host_blocks * block_bytes
    assert pools["device"] == memory.plan.device_blocks * memory.page.bytes_per_block
    small = replace(HYBRID, host_bytes=100 * block_bytes + 1)
    assert plan_memory(CONFIG, SPEC, mixed, small).plan.host_blocks == 100
    assert plan(capacities=small).plan.host_blocks == 56


def test_context_is_limited_to_what_fits_and_says_so() -> None:
    memory = plan(capacities=Capacities(2 * MIB, 0, real=False))
    assert memory.plan.max_model_len == memory.plan.device_blocks * 64 + 1
    assert any("context limited" in note for note in memory.plan.notes)


@pytest.mark.parametrize("real", [False, True], ids=["emulated", "real"])
def test_what_the_kernel_keeps_for_all_that_lies_in_host_memory_is_charged(real: bool) -> None:
    entries = plan(capacities=replace(HYBRID, device_bytes=128 * MIB, real=real)).ledger.entries
    (kernel,) = (e for e in entries if e.label == "kernel")
    mapped = sum(e.predicted_bytes for e in entries if e.location == "host" and e != kernel)
    mapped += 0 if real else sum(e.predicted_bytes for e in entries if e.location == "device")
    assert kernel.location == "host"
    assert kernel.predicted_bytes - KERNEL_BYTES == page_table_bytes(mapped) >= mapped // 512


def test_real_devices_set_kernel_scratch_aside() -> None:
    emulated = plan(capacities=Capacities(128 * MIB, 0, real=False))
    real = plan(capacities=Capacities(68 * MIB, 0))
    assert real.plan.device_blocks < emulated.plan.device_blocks
    assert "kernel scratch" in {entry.label for entry in real.ledger.entries}


def test_on_the_host_alone_buffers_that_stay_while_tokens_are_sampled_are_told() -> None:
    def buffers(tokens: int, host: Capacities) -> int:
        config = replace(CONFIG, max_num_batched_tokens=tokens)
        rows = {entry.label: entry.predicted_bytes for entry in plan(config, host).ledger.entries}
        return rows.get("kernel buffers", 0)

    host = Capacities(GIB, 0, "host")
    assert 2 * buffers(8, host) == buffers(16, host) > 0
    assert buffers(2048, host) == buffers(4096, host), "no more than sampling takes"
    assert buffers(16, replace(host, compiled=False)) == buffers(16, HYBRID) == 0


def test_an_explicit_length_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"memory too small.*use --gpu-memory \d+MiB or") as e:
        plan(replace(CONFIG, max_model_len=4096), Capacities(2 * MIB, 0, real=False))
    assert e.value.param == "max_model_len"


def test_both_tiers_together_hold_what_neither_could() -> None:
    small = Capacities(2 * MIB, 2 * MIB, real=False)
    config = replace(CONFIG, max_model_len=4096)
    memory = plan(config, small)
    assert memory.plan.device_blocks * 64 < 4096
    assert memory.plan.max_model_len == 4096
    with pytest.raises(ConfigError, match="memory too small"):
        plan(replace(config, strategy="gpu-only"), small)


def test_weights_larger_than_the_device_are_refused_with_numbers() -> None:
    with pytest.raises(ConfigError, match=r"memory too small even with as many layers .* needed"):
        plan(capacities=Capacities(WEIGHTS // 2, 64 * MIB, real=False))
    with pytest.raises(ConfigError, match=r"device memory too small: weights .* needed"):
        plan(capacities=Capacities(WEIGHTS // 2, 0, real=False))


@pytest.mark.parametrize("way", ["stream", "cpu", "mlp"])
def test_the_size_that_a_refusal_names_is_enough(way: HostLayers) -> None:
    config = replace(CONFIG, host_layers=way, max_num_batched_tokens=16)
    spec = replace(SPEC, num_layers=8, vocab_size=20_000)
    with pytest.raises(ConfigError, match="memory too small") as error:
        plan_memory(config, spec, FLOAT32, Capacities(MIB, 64 * MIB, real=False))
    named = re.search(r"use --gpu-memory (\d+)MiB or more", error.value.message)
    assert named is not None
    least = int(named[1]) * MIB
    memory = plan_memory(config, spec, FLOAT32, Capacities(least, 64 * MIB, real=False))
    assert all(run.home != "resident" for run in memory.plan.weights)
    with pytest.raises(ConfigError, match="memory too small"):
        plan_memory(config, spec, FLOAT32, Capacities(least - MIB, 64 * MIB, real=False))


@pytest.mark.parametrize("rates", [True, False])
def test_without_room_for_layers_on_their_way_the_cpu_computes_all(rates: bool) -> None:
    spec = replace(SPEC, num_layers=8)
    layer = layer_matrix_parameters(spec) * DType.FLOAT32.size_bytes
    outside = weight_bytes(spec, DType.FLOAT32) - 8 * layer
    config = replace(CONFIG, max_num_batched_tokens=16)
    small = Capacities(outside + layer + MIB // 4, 64 * MIB, real=False)
    hardware = load_hardware("t4") if rates else None
    memory = plan_memory(config, spec, FLOAT32, small, hardware=hardware)
    assert {run.home for run in memory.plan.weights} <= {"cpu", "resident"}
    assert any("CPU" in note for note in memory.plan.notes)


def test_mlps_are_charged_where_they_lie_and_the_rest_on_the_device() -> None:
    spec = replace(SPEC, num_layers=8, tie_embeddings=True)
    whole = weight_bytes(spec, DType.FLOAT32)
    config = replace(CONFIG, host_layers="mlp")
    memory = plan_memory(config, spec, FLOAT32, Capacities(whole, 64 * MIB, real=False))
    mlps = layers_at(memory.plan.weights, "cpu-mlp")
    assert 1 <= len(mlps) < 8
    mlp = 3 * SPEC.hidden_size * SPEC.intermediate_size * DType.FLOAT32.size_bytes
    rows = {(entry.location, entry.label): entry for entry in memory.ledger.entries}
    assert rows["host", "weights"].predicted_bytes == len(mlps) * mlp
    assert rows["device", "weights"].predicted_bytes == whole - len(mlps) * mlp
    assert memory.ledger.totals("device").predicted_bytes <= whole
    assert any("the MLPs of" in note for note in memory.plan.notes)
    assert rows["host", "cpu layer scratch"].predicted_bytes > 0


def test_layers_that_do_not_fit_are_streamed_and_charged_where_they_lie() -> None:
    spec = replace(SPEC, num_layers=8, tie_embeddings=True)
    whole = weight_bytes(spec, DType.FLOAT32)
    memory = plan_memory(CONFIG, spec, FLOAT32, Capacities(whole, 64 * MIB, real=False))
    streamed = streamed_layers(memory.plan.weights).layers
    assert 2 <= len(streamed) < 8
    layer = layer_matrix_parameters(spec) * DType.FLOAT32.size_bytes
    rows = {(entry.location, entry.label): entry for entry in memory.ledger.entries}
    on_device = rows["device", "weights"].predicted_bytes
    assert rows["host", "weights"].predicted_bytes == len(streamed) * layer
    assert on_device == whole - (len(streamed) - 2) * layer
    assert memory.ledger.totals("device").predicted_bytes <= whole
    assert any("streamed" in note for note in memory.plan.notes)


UNTIED = replace(SPEC, num_layers=8, vocab_size=2000, tie_embeddings=False)
TABLE = 2000 * SPEC.hidden_size * DType.FLOAT32.size_bytes


@pytest.mark.parametrize("host_layers", ["auto", "stream", "cpu", "mlp"])
def test_embeddings_make_room_for_layers(host_layers: HostLayers) -> None:
    config = replace(CONFIG, host_layers=host_layers)
    whole = weight_bytes(UNTIED, DType.FLOAT32)
    capacities = Capacities(whole + MIB // 2, 64 * MIB, real=False)
    apart = plan_memory(config, UNTIED, FLOAT32, capacities)
    tied = replace(UNTIED, tie_embeddings=True, vocab_size=2 * UNTIED.vocab_size)
    assert weight_bytes(tied, DType.FLOAT32) == whole
    beside = plan_memory(config, tied, FLOAT32, capacities)
    assert (apart.plan.embedding, beside.plan.embedding) == ("host", "resident")
    on_device, in_host = (
        {e.location: e.predicted_bytes for e in memory.ledger.entries if e.label == "weights"}
        for memory in (apart, beside)
    )
    # layers that came back to the accelerator take what embeddings have left
    assert on_device["host"] - TABLE < in_host["host"]
    assert apart.ledger.budget("device").left_bytes >= 0
    assert [note for note in apart.plan.notes if "token embeddings (500.0 KiB)" in note]
    assert not [note for note in beside.plan.notes if "token embeddings" in note]


def test_embeddings_stay_where_everything_fits_and_alone_make_room() -> None:
    around = plan_memory(CONFIG, UNTIED, FLOAT32, Capacities(GIB, 64 * MIB, real=False))
    assert around.plan.embedding == "resident"
    used = sum(
        e.predicted_bytes
        for e in around.ledger.entries
        if e.location == "device" and e.label != "kv pool"
    )
    small = Capacities(used, 64 * MIB, real=False)
    memory = plan_memory(CONFIG, UNTIED, FLOAT32, small)
    assert memory.plan.embedding == "host"
    assert {run.home for run in memory.plan.weights} == {"resident"}


def test_embeddings_never_send_a_layer_to_the_disk() -> None:
    """Of a layer there a step reads all."""
    config = replace(CONFIG, host_layers="stream")
    device_bytes = weight_bytes(UNTIED, DType.FLOAT32) + MIB // 2
    with_embeddings = set[bool]()
    for host_bytes in range(MIB, 3 * MIB, MIB // 8):
        capacities = Capacities(device_bytes, host_bytes, real=False)
        try:
            memory = plan_memory(config, UNTIED, FLOAT32, capacities)
        except ConfigError:
            continue
        assert memory.ledger.budget("host").left_bytes >= 0
        with_embeddings.add(memory.plan.embedding == "host")
        tied = replace(UNTIED, tie_embeddings=True, vocab_size=2 * UNTIED.vocab_size)
        try:
            beside = plan_memory(config, tied, FLOAT32, capacities)
        except ConfigError:
            continue
        here, there = (disk_layers(found.plan.weights) for found in (memory, beside))
        assert len(here) <= len(there)
    assert True in with_embeddings


def test_a_placement_says_where_embeddings_lie(tmp_path: Path) -> None:
    chosen = tmp_path / "placement.json"
    chosen.write_text('{"layers": [], "embedding": "host"}')
    config = replace(CONFIG, placement=str(chosen))
    memory = plan_memory(config, UNTIED, FLOAT32, HYBRID)
    assert memory.plan.embedding == "host"
    with pytest.raises(ConfigError, match="are its output head, too"):
        plan_memory(config, replace(UNTIED, tie_embeddings=True), FLOAT32, HYBRID)
    with pytest.raises(ConfigError, match="embeddings be looked up, only from host memory"):
        plan_memory(config, UNTIED, FLOAT32, Capacities(8 * MIB, 0))
    again = plan_memory(CONFIG, UNTIED, FLOAT32, HYBRID, planned=memory.plan).plan
    assert again.embedding == "host"


def test_how_fewer_layers_would_stay_on_disk_is_told_where_nobody_placed_them(
    tmp_path: Path,
) -> None:
    chosen = tmp_path / "placement.json"
    chosen.write_text('{"layers": [{"first_layer": 0, "last_layer": 2, "home": "disk"}]}')
    roomy = Capacities(64 * MIB, 0, "host", elastic=True)
    config = replace(CONFIG, placement=str(chosen))
    placed = plan_memory(config, UNTIED, FLOAT32, roomy).plan
    assert disk_layers(placed.weights) == (0, 1, 2)
    assert not any("fewer" in note for note in placed.notes)
    deep = replace(UNTIED, num_layers=100)
    scarce = replace(roomy, device_bytes=weight_bytes(deep, DType.FLOAT32))
    alone = plan_memory(CONFIG, deep, FLOAT32, scarce).plan
    assert disk_layers(alone.weights)
    assert any("fewer" in note for note in alone.notes)


def test_layers_without_experts_are_not_streamed_among_those_with_some(tmp_path: Path) -> None:
    experts = ExpertSpec(4, 2, 48, dense_layers=(0, 5))
    spec = replace(SPEC, num_layers=8, experts=experts, tie_embeddings=True)
    whole = weight_bytes(spec, DType.FLOAT32)
    capacities = Capacities(whole, 64 * MIB, real=False)
    memory = plan_memory(replace(CONFIG, host_layers="stream"), spec, FLOAT32, capacities)
    streamed = streamed_layers(memory.plan.weights).layers
    assert streamed
    assert not {0, 5} & set(streamed)
    layer = layer_matrix_parameters(spec, 1) * DType.FLOAT32.size_bytes
    rows = {(entry.location, entry.label): entry for entry in memory.ledger.entries}
    assert rows["host", "weights"].predicted_bytes == len(streamed) * layer
    assert rows["device", "weights"].predicted_bytes == whole - (len(streamed) - 2) * layer

    chosen = tmp_path / "placement.json"
    chosen.write_text('{"layers": [{"first_layer": 4, "last_layer": 5, "home": "streamed"}]}')
    with pytest.raises(ConfigError, match="layer 5 has no experts"):
        plan_memory(replace(CONFIG, placement=str(chosen)), spec, FLOAT32, capacities)


def test_a_measured_workspace_takes_the_place_of_the_prediction() -> None:
    measured = plan_memory(
        CONFIG, SPEC, FLOAT32, Capacities(GIB, 0), measured_workspace_bytes=12345
    )
    rows = {entry.label: entry for entry in measured.ledger.entries}
    assert rows["workspace"].predicted_bytes == 12345
    assert "kernel scratch" not in rows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "fastest"}, "unknown strategy"),
        (
            {"strategy": "simple"},
            "run tandem plan with --policy simple --output FILE, and this with",
        ),
        ({"max_num_batched_tokens": 2}, "max_num_batched_tokens"),
        ({"strategy": "gpu-only", "kv_placement": "host"}, "cannot attend KV on the host"),
        ({"max_model_len": 5000}, "beyond the model's 4096 positions"),
        ({"pinned_memory": "1GiB"}, "bounds what the plan of a batch job pins"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(replace(CONFIG, **changes))


@pytest.mark.parametrize("changes", [{"kv_placement": "device"}, {"strategy": "gpu-only"}])
def test_a_type_of_kv_on_the_host_is_refused_where_none_can_lie(changes: dict[str, object]) -> None:
    config = replace(CONFIG, cpu_kv_dtype="int8", **changes)
    with pytest.raises(ConfigError, match="--cpu-kv-dtype int8 has no meaning with --") as error:
        plan(config)
    assert error.value.param == "cpu_kv_dtype"
    assert plan(replace(config, preemption_mode="swap")).plan.host_blocks
    plan(replace(config, cpu_kv_dtype="auto"))


def test_the_memory_that_this_machine_lacks_is_not_named() -> None:
    small = Capacities(MIB, 0, real=False, device_limit_bytes=MIB, host_limit_bytes=0)
    with pytest.raises(ConfigError, match="no more memory that this machine has would do"):
        plan(CONFIG, small)
    more = replace(small, device_limit_bytes=8 * MIB)
    with pytest.raises(ConfigError, match=r"; use --gpu-memory [2-8]MiB or more$"):
        plan(CONFIG, more)


@pytest.mark.parametrize(
    "changes", [{"kv_placement": "host"}, {"strategy": "rendezvous"}, {"strategy": "asymmetric"}]
)
def test_host_placement_needs_a_host_tier(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="needs a host KV tier"):
        plan(replace(CONFIG, **changes), Capacities(GIB, 0, "host"))


def test_passes_beside_every_layer_unless_they_are_bounded() -> None:
    made = plan(replace(CONFIG, strategy="asymmetric")).plan
    assert made.interposition_budget == made.num_layers
    bounded = replace(CONFIG, strategy="asymmetric", interposition_budget=0)
    assert plan(bounded).plan.interposition_budget == 0
    assert plan(replace(CONFIG, strategy="rendezvous")).plan.interposition_budget == 0


def test_passes_of_another_strategy_are_refused() -> None:
    with pytest.raises(ConfigError, match="--interposition-budget has no meaning") as error:
        plan(replace(CONFIG, strategy="rendezvous", interposition_budget=2))
    assert error.value.param == "interposition_budget"


def test_auto_names_the_strategy_it_chose() -> None:
    assert plan().plan.strategy == "ride-along"
    assert plan(capacities=Capacities(GIB, 0, "host")).plan.strategy == "gpu-only"


def test_the_plan_survives_json() -> None:
    made = plan().plan
    assert OnlinePlan.from_json(made.to_json()) == made


def test_steps_are_chosen_where_requests_are_to_lie_on_the_host_and_rates_are_known() -> None:
    hosted = replace(CONFIG, max_host_seqs=6, tpot_bound="100ms")
    chosen = plan(hosted, hardware=load_hardware("small")).plan
    assert (chosen.strategy, chosen.max_cohorts, chosen.max_cohort_rows) == ("auto", 2, 3)
    assert chosen.interposition_budget == chosen.num_layers
    assert not any("--tpot-bound" in note for note in chosen.notes)
    unknown = plan(hosted).plan
    assert (unknown.strategy, unknown.interposition_budget) == ("ride-along", 0)
    assert any("--tpot-bound 100ms has no effect" in note for note in unknown.notes)
    assert plan(CONFIG, hardware=load_hardware("small")).plan.strategy == "ride-along"


def test_host_layers_of_which_there_are_none_are_said_to_have_no_effect() -> None:
    options = replace(CONFIG, host_layers="stream")
    resident = plan(options, Capacities(8 * GIB, 8 * GIB, real=False)).plan.notes
    assert "--host-layers stream has no effect: all layers are resident" in resident
    assert not any("no effect" in note for note in plan().plan.notes)
    assert void_host_layers(options, as_runs(["resident", "streamed", "streamed"])) == ()


def test_a_bound_on_steps_is_refused_where_none_are_chosen() -> None:
    with pytest.raises(ConfigError, match="--tpot-bound 100ms has no meaning") as error:
        plan(replace(CONFIG, tpot_bound="100ms"))
    assert error.value.param == "tpot_bound"
    with pytest.raises(ConfigError, match="'soon' is not a duration"):
        replace(CONFIG, tpot_bound="soon")


def test_beside_a_bound_on_first_tokens_one_on_steps_has_a_meaning() -> None:
    bounded = replace(CONFIG, tpot_bound="100ms", ttft_bound="2s")
    assert not any("-bound" in note for note in plan(bounded).plan.notes)
    with pytest.raises(ConfigError, match="'later' is not a duration") as error:
        replace(CONFIG, ttft_bound="later")
    assert error.value.param == "ttft_bound"


@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along"])
def test_first_tokens_are_bounded_under_any_strategy_where_rates_are_known(strategy: str) -> None:
    bounded = replace(CONFIG, strategy=strategy, ttft_bound="2s")
    made, hardware = plan(bounded), load_hardware("small")

    def priced(hardware: HardwareSpec | None, config: EngineConfig) -> bool:
        found = prices_of(made.plan, SPEC, FLOAT32, made.page, hardware, config, 0.0)
        return found is not None

    assert priced(hardware, bounded)
    assert not priced(hardware, replace(bounded, ttft_bound=None))
    with pytest.raises(ConfigError, match="--ttft-bound 2s orders prompts") as error:
        priced(None, bounded)
    assert error.value.param == "ttft_bound"


def test_both_ways_back_at_once_take_rates() -> None:
    mixed = replace(CONFIG, strategy="gpu-only", preemption_mode="mix")
    made, hardware = plan(mixed), load_hardware("small")
    assert prices_of(made.plan, SPEC, FLOAT32, made.page, hardware, mixed, 0.0) is not None
    with pytest.raises(ConfigError, match="--preemption-mode mix splits") as error:
        prices_of(made.plan, SPEC, FLOAT32, made.page, None, mixed, 0.0)
    assert error.value.param == "preemption_mode"
