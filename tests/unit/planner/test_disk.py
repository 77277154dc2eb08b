"""Layers on disk in plans: their time against sums done by hand, and engines that execute them."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import alone, ask, short, with_disk

from tandem.cost.sweep_time import Way, layer_times, sweep_s
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import plan_memory
from tandem.models.catalogue import plannable_spec
from tandem.plan.disk_slots import SLOTS
from tandem.plan.plan_file import PlanFile
from tandem.plan.program import LaneShape, OpKind, Part, Queue
from tandem.plan.weights import Home, homes_by_layer
from tandem.planner.answer import Answer, answer
from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.sweep_operations import sweep_operations
from tandem.planner.footprint import Footprint
from tandem.planner.plan_file import plan_file
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.search import Search
from tandem.planner.sweep_load import decode_load
from tandem.planner.sweeps import Sweeps
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.units import GIB

AUTO = POLICIES["auto"]
SMALL = short(plannable_spec("llama-3.1-8b"), 12)
DESKTOP = ask("llama-3.1-70b", "rtx4090", "desktop-ddr5", objective="latency")


def decode_s(question: Question, elsewhere: Elsewhere) -> float:
    """One request's sweep in virtual time, after many."""
    search = Search(question)
    sweeps = Sweeps(question, search.footprint, search.schedules)
    candidate = Candidate("gpu-only", 0, 1, 0).with_elsewhere(elsewhere)
    return sweeps.time(elsewhere, decode_load(candidate, question.lengths)).period_s


@pytest.mark.parametrize("rate", [1e9, 5e9, 12e9, 40e9])
@pytest.mark.parametrize(
    "elsewhere",
    [
        Elsewhere(12, on_disk=12),
        Elsewhere(12, on_disk=5),
        Elsewhere(8, on_disk=4),
        Elsewhere(10, on_disk=3).lending(6),
        Elsewhere(4, 5, "cpu", on_disk=4),
        Elsewhere(0, 9, "cpu", on_disk=4),
    ],
    ids=["all", "some of all", "some of some", "beside lent", "beside the CPU's", "for the CPU"],
)
def test_a_sweep_takes_what_an_engine_without_a_plan_predicts(
    elsewhere: Elsewhere, rate: float
) -> None:
    # no contention, which both price, but differently
    question = with_disk(ask(SMALL, "a10g", "server-genoa", prompt="16", generate="8"), rate)
    on_cpu = elsewhere.sweep(12, prompts=False).on_cpu
    names: dict[Home, Way] = {
        "disk_streamed": "read", "streamed": "loaded", "host": "loaded", "disk-cpu": "read-cpu",
    }  # fmt: skip
    ways: list[Way] = [
        "cpu" if layer in on_cpu and home != "disk-cpu" else names.get(home, "resident")
        for layer, home in sorted(homes_by_layer(elsewhere.placement(12)).items())
    ]
    times = layer_times(question.model, question.precision, 1, question.hardware)
    assert decode_s(question, elsewhere) == pytest.approx(sweep_s(ways, 2, times), rel=0.05)


@pytest.mark.parametrize("rate", [0.5e9, 3e9, 60e9])
@pytest.mark.parametrize("on_disk", [3, 7, 12])
def test_on_the_host_alone_a_sweep_takes_the_disk_s_time_or_the_memory_s(
    on_disk: int, rate: float
) -> None:
    question = with_disk(alone(SMALL, host_bytes=30 << 30, prompt="16", generate="8"), rate)
    footprint = Search(question).footprint
    read_s = on_disk * footprint.layer_bytes / rate
    resident_s = decode_s(question, Elsewhere())
    # what is read is written into the memory that layers are computed from
    pool = question.hardware.host.pool_bytes_per_s
    shared_s = resident_s + on_disk * footprint.layer_bytes / pool
    found = decode_s(question, Elsewhere(on_disk=on_disk))
    assert found >= max(read_s, resident_s) * (1 - 1e-9)
    assert found == pytest.approx(max(read_s, shared_s), rel=0.1)


def test_reads_in_place_go_round_across_sweeps() -> None:
    layers = Elsewhere(on_disk=3).sweep(4, prompts=False)
    on_disk = layers.streamed.on_disk
    assert len(on_disk) == 3
    ops = sweep_operations(4, (LaneShape(),), layers)
    reads = [op for op in ops if op.kind is OpKind.READ]
    # the first two layers were read in the sweep before; this one reads the third, and those two
    assert [op.layer for op in reads] == [on_disk[2], on_disk[0], on_disk[1]]
    waits = [
        wait.ordinal
        for op in ops
        if op.part is Part.PRE and op.layer in on_disk
        for wait in op.waits
        if wait.queue is Queue.DISK
    ]
    assert waits == [-1, 0, 1]
    used = {op.ordinal: op.layer for op in ops if op.part is Part.POST}
    assert [used[op.waits[0].ordinal] for op in reads] == list(on_disk)


def test_what_host_memory_does_not_hold_is_planned_on_disk() -> None:
    found = answer(DESKTOP)
    candidate, footprint = found.chosen.candidate, Search(DESKTOP).footprint
    assert candidate.on_disk
    assert found.host.free_bytes >= 0
    # the disk works all the time, and no more is on it than must be, but for a round
    read_s = candidate.on_disk * footprint.layer_bytes / 6e9
    assert found.chosen.prediction.rates.tpot_s == pytest.approx(read_s, rel=0.1)
    assert found.chosen.prediction.bottleneck[0] == "disk"
    room = DESKTOP.device_bytes + DESKTOP.host_bytes - footprint.resident_bytes(Elsewhere())
    assert candidate.on_disk <= -room / footprint.layer_bytes + 2 + 2 + 2
    assert found.ceiling is not None
    assert found.ceiling.tokens_per_s >= found.chosen.tokens_per_s
    faster = {entry.change: entry.gain for entry in found.sensitivities}["+1 GB/s disk"]
    assert faster == pytest.approx(1 / 6, rel=0.2)


def test_without_a_disk_s_rate_it_is_refused_and_says_so() -> None:
    with pytest.raises(ConfigError, match=r"does not fit.*would do: --disk RATE") as refused:
        answer(with_disk(DESKTOP, None))
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"on disk it needs .* on the accelerator"):
        answer(replace(DESKTOP, device_bytes=2 * GIB))
    with pytest.raises(ConfigError, match=r"with every layer on disk it needs .* beside the KV"):
        answer(alone("llama-3.1-70b", host_bytes=2 * GIB))


def test_a_policy_without_streaming_leaves_what_is_read_to_the_cpu() -> None:
    for option in (result.option for result in answer(DESKTOP, compare=True).policies):
        assert option is None or option.candidate.on_disk
    found = answer(DESKTOP, "n-gpu-layers")
    assert set(homes_by_layer(found.plan.weights).values()) == {"resident", "cpu", "disk-cpu"}
    executes(found, Capacities(DESKTOP.device_bytes, DESKTOP.host_bytes))
    with pytest.raises(ConfigError, match="does not fit under policy 'n-cpu-moe'"):
        answer(DESKTOP, "n-cpu-moe")


def test_where_the_cpu_computes_what_is_read_no_slots_take_the_place_of_layers() -> None:
    """Two more layers are resident, and two fewer are read."""
    search = Search(replace(DESKTOP, host_bytes=100 * GIB))
    best, streamed = search.best(AUTO), search.best(POLICIES["gpu-only"])
    assert best is not None
    assert streamed is not None
    assert best.candidate.elsewhere.read_on_cpu
    assert best.candidate.on_disk < streamed.candidate.on_disk
    assert best.tokens_per_s > 1.1 * streamed.tokens_per_s


def executes(found: Answer, capacities: Capacities) -> None:
    planned = PlanFile.from_json(plan_file("any", found.question, found.plan).to_json())
    question = found.question
    config = EngineConfig(model="any", **planned.settings)
    memory = plan_memory(
        config, question.model, question.precision, capacities, planned=planned.online
    )
    assert replace(memory.plan, notes=()) == planned.plan == found.plan
    for place in ("device", "host"):
        if place in {entry.location for entry in memory.ledger.entries}:
            assert memory.ledger.budget(place).left_bytes >= 0


def test_an_engine_executes_such_plans() -> None:
    executes(answer(DESKTOP), Capacities(DESKTOP.device_bytes, DESKTOP.host_bytes))
    question = alone(SMALL, host_bytes=4 * GIB, requests=8)
    found = answer(question)
    assert {run.home for run in found.plan.weights} == {"resident", "disk"}
    executes(found, Capacities(question.device_bytes, 0, "host", real=False))


def test_on_the_host_alone_layers_make_room_for_requests() -> None:
    """All weights fit, but few requests beside them."""
    question = alone(SMALL, host_bytes=8 * GIB, requests=200, prompt="64", generate="1500")
    policy = POLICIES["gpu-only"]
    best = Search(with_disk(question, 20e9)).best(policy)
    without = Search(with_disk(question, None)).best(policy)
    assert best is not None
    assert without is not None
    assert best.candidate.on_disk
    assert best.candidate.rows > without.candidate.rows
    assert best.tokens_per_s > 1.05 * without.tokens_per_s


def test_as_few_layers_are_on_disk_as_leave_room_for_a_request() -> None:
    """Counts are tried in growing steps, but only beyond the first that a request fits beside."""
    question = with_disk(alone(SMALL, host_bytes=1 << 40, requests=1, prompt="32000"), 2e9)
    footprint = Footprint(question)
    row = footprint.longest_blocks * footprint.block_bytes
    for layers in range(SLOTS + 1, SMALL.num_layers + 1):
        needed = footprint.resident_bytes(Elsewhere(on_disk=layers))
        needed += footprint.workspace("gpu-only", 1) + row
        tight = replace(question, device_bytes=needed)
        found = Candidates(tight, Footprint(tight)).of(POLICIES["gpu-only"])
        assert min(candidate.on_disk for candidate in found) == layers
