"""Blocks whose layers come from disk: as few as host memory makes necessary, at the disk's rate."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short, with_disk

from tandem.cost.block_calibration import BlockFactors
from tandem.cost.block_pass import longest_s
from tandem.engine.sizing.block_memory import plan_block_memory
from tandem.engine.sizing.capacities import Capacities
from tandem.models.catalogue import plannable_spec
from tandem.plan.disk_slots import direct_slots_bytes, slots_bytes
from tandem.plan.offline import OfflinePlan
from tandem.planner.offline.answer import offline_answer, offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.replan import as_measured
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.share_terms import mean_work, share_terms
from tandem.planner.question import Question
from tandem.spec.errors import ConfigError
from tandem.spec.units import GIB, MIB

OPT = short(plannable_spec("opt-6.7b"), 8)
LAYER_BYTES = 12 * 4096**2 * 2
TOKEN_BYTES = 2 * 4096 * 2  # keys and values of one token in one layer
DISK = 2e9
STREAMED = BlockCandidate(2, 8, 4, 0, 0)
AUTO = OFFLINE_POLICIES["auto"]


def scarce(host_bytes: int, disk: float | None = DISK) -> Question:
    """Layers of 384 MiB over a link of 24 GB/s; the accelerator has room for slots and some KV."""
    question = ask(OPT, "a10g", "server-genoa", prompt="512", generate="65", requests=64)
    return with_disk(replace(question, device_bytes=5 * GIB // 2, host_bytes=host_bytes), disk)


def test_a_pass_takes_as_long_as_its_reads() -> None:
    search = OfflineSearch(scarce(8 * GIB))
    for count in (1, 5, 8):
        read = replace(STREAMED, on_disk=count)
        time = search.times.time(read).decode
        reads_s = count * LAYER_BYTES / DISK
        assert time.disk_s == pytest.approx(reads_s)
        assert search.times.bound.decode_s(read) >= reads_s * (1 - 1e-9)
        alone_s = LAYER_BYTES / 24e9 if count == 1 else 0.0  # it is read when it has been copied
        assert reads_s <= time.period_s < 1.03 * (reads_s + alone_s)
    prompts = search.times.time(STREAMED).prefill, search.times.time(read).prefill
    assert prompts[1].disk_s == pytest.approx(reads_s)
    assert prompts[0].disk_s == 0.0
    with_reads = search.option(read).prediction.tokens
    assert with_reads.bottleneck[0] == "disk"
    assert "disk" not in dict(search.option(STREAMED).prediction.tokens.busy)


def test_no_more_layers_are_on_disk_than_host_memory_makes_necessary() -> None:
    wants = replace(STREAMED, resident_rows=2, streamed_rows=2)
    kv = 8 * 4 * 576 * TOKEN_BYTES
    for missing in (1, 3, 5):
        room = 8 * LAYER_BYTES + kv - missing * LAYER_BYTES
        footprint = OfflineSearch(scarce(room)).footprint
        placed = footprint.placed(wants)
        sums = footprint.host(placed, prompts_on_host=False)
        assert placed == replace(wants, on_disk=missing + 3)  # two slots, and pieces on their way
        assert sums.weights == (5 - missing) * LAYER_BYTES + slots_bytes(LAYER_BYTES)
        assert footprint.fits(placed)
        assert not footprint.fits(replace(placed, on_disk=missing + 2))
        assert footprint.placed(placed) == placed
        # what threads hold is not pinned
        assert sums.pinned < sums.total < sums.pinned + 8 * 2**20
    assert OfflineSearch(scarce(16 * GIB)).footprint.placed(placed) == wants


def test_a_model_that_host_memory_does_not_hold_is_planned_for() -> None:
    question = scarce(3 * GIB // 2)
    found = offline_answer(question)
    chosen, plan = found.chosen.candidate, found.plan
    assert 0 < chosen.on_disk <= chosen.streamed
    assert plan.shape.weights.on_disk
    assert len(plan.shape.weights.on_disk) == chosen.on_disk
    assert "of them from disk" in chosen.describe(8)
    assert OfflinePlan.from_json(plan.to_json()) == plan
    assert plan.host.free_bytes >= 0
    assert found.sensitivities[0].change == "+1 GB/s disk"
    assert found.sensitivities[0].gain > 0.1
    # more host memory is never worse
    more = OfflineSearch(replace(question, host_bytes=2 * GIB)).best(AUTO)
    assert more is not None
    assert more.tokens_per_s > found.chosen.tokens_per_s
    # of layers that are resident but for their MLPs, host memory holds more
    assert (more.candidate.on_disk, more.candidate.mlps) == (0, True)


def test_without_a_rate_nothing_is_read() -> None:
    search = OfflineSearch(scarce(8 * GIB, None))
    assert any(candidate.streamed for candidate in search.candidates.of(AUTO))
    assert not any(candidate.on_disk for candidate in search.candidates.of(AUTO))
    with pytest.raises(ConfigError, match="no block of requests fits: with all layers streamed, o"):
        offline_answer(scarce(GIB, None))
    with pytest.raises(ConfigError, match=r"; give --disk RATE .*, raise --gpu-memory or --cpu"):
        offline_answer(scarce(GIB, None))
    with pytest.raises(ConfigError, match=r"from disk, one takes .* give .*; raise --gpu-memory"):
        offline_answer(scarce(GIB // 2))
    with pytest.raises(ConfigError, match=r"layers streamed, one .* give .*; raise --gpu-memory"):
        offline_answer(scarce(GIB // 2, None))


def test_slots_that_disks_are_read_into_are_the_gpu_s_past_host_memory() -> None:
    """Which no plan counts on: a refusal names how much less to plan with."""
    search = OfflineSearch(scarce(8 * GIB))
    plan = offline_plan(search, BlockCandidate(2, 8, 4, 0, 0, on_disk=3))
    precision, slots = search.question.precision, direct_slots_bytes(LAYER_BYTES)
    room = Capacities(search.question.device_bytes + slots, search.question.host_bytes, real=True)
    memory = [
        plan_block_memory(plan, OPT, precision, room, direct=direct) for direct in (False, True)
    ]
    through, past = (
        {(row.location, row.label): row.predicted_bytes for row in each.ledger.entries}
        for each in memory
    )
    assert past["device", "weights"] == through["device", "weights"] + slots
    assert through["host", "weight slots"] == slots_bytes(LAYER_BYTES)
    assert ("host", "weight slots") not in past
    used = sum(size for (place, _), size in past.items() if place == "device")
    tight = replace(room, device_bytes=used - 1)
    plan_block_memory(plan, OPT, precision, tight)
    with pytest.raises(ConfigError, match=r"needs .* of device memory") as error:
        plan_block_memory(plan, OPT, precision, tight, direct=True)
    assert f"--gpu-memory {(used - 1 - slots) // MIB}MiB, or give it more" in str(error.value)


MLP_BYTES = 8 * 4096**2 * 2
APART = BlockCandidate(2, 8, 4, 0, 0, mlps=True)


def test_beside_mlps_whole_layers_are_on_disk() -> None:
    """They take no room on the accelerator, but for slots as large as they are."""
    search = OfflineSearch(scarce(8 * GIB))
    footprint, times = search.footprint, search.times
    for count, lent in ((2, 0), (2, 6), (3, 2), (5, 3)):
        read = replace(APART, on_disk=count, lent=lent)
        device = footprint.device(read, prompts_on_host=False)
        plain = footprint.device(APART, prompts_on_host=False)
        assert plain.weights - device.weights == (count - 2) * (LAYER_BYTES - MLP_BYTES)
        host = footprint.host(read, prompts_on_host=False)
        assert host.weights == (8 - count) * MLP_BYTES + slots_bytes(LAYER_BYTES)
        time = times.time(read).decode
        stay = count == 2 and lent == 6  # in the slots
        assert time.disk_s == pytest.approx(0 if stay else count * LAYER_BYTES / DISK, rel=1e-3)
        brought = 0 if stay else count * LAYER_BYTES + (8 - count - lent) * MLP_BYTES
        assert time.h2d_s == pytest.approx(brought / 24e9, rel=0.02, abs=2e-4)
        assert time.period_s >= times.bound.decode_s(read)
        plan = offline_plan(search, read)
        assert len(plan.shape.weights.on_disk) == count
        assert len(plan.shape.weights.mlps) == 8 - count
        assert len(plan.cpu_mlps) == lent
        assert OfflinePlan.from_json(plan.to_json()) == plan
        room = Capacities(search.question.device_bytes, search.question.host_bytes, real=True)
        ledger = plan_block_memory(plan, OPT, search.question.precision, room).ledger
        rows = {(row.location, row.label): row.predicted_bytes for row in ledger.entries}
        assert rows["device", "weights"] == plan.accelerator.weights_bytes
        assert rows["host", "weights"] + rows["host", "weight slots"] == plan.host.weights_bytes
    for missing, count in ((1, 4), (3, 6)):
        tight = OfflineSearch(scarce(8 * MLP_BYTES - missing * MLP_BYTES + GIB // 16)).footprint
        placed = tight.placed(replace(APART, lent=6))
        assert placed.on_disk >= count
        assert placed.lent == 8 - placed.on_disk
    said = replace(APART, on_disk=2, lent=3).describe(8)
    assert "the MLPs of 6 of 8 layers streamed, 3 of them on the CPU where no prompt is" in said
    assert "and 2 layers streamed from disk" in said


def test_where_some_layers_must_be_on_disk_the_cpu_computes_mlps_of_others() -> None:
    deep = short(plannable_spec("llama-3.1-70b"), 24)
    job = ask(deep, "a100-80", "server-genoa", prompt="128", generate="65", requests=16)
    question = with_disk(replace(job, device_bytes=18 * GIB, host_bytes=27 * GIB), 12e9)
    search = OfflineSearch(question)
    without = replace(AUTO, name="without", apart=False, computes=False, computes_layers=False)
    best, other = search.best(AUTO), search.best(without)
    assert best is not None
    assert other is not None
    assert best.candidate.on_disk
    assert best.candidate.lent
    assert best.tokens_per_s > 2 * other.tokens_per_s
    ceiling = BlockCeilings(question, search.times).ceiling()
    assert ceiling is not None
    assert best.tokens_per_s <= ceiling.tokens_per_s


@pytest.mark.parametrize("host_bytes", [GIB, 3 * GIB // 2])
def test_no_plan_that_reads_exceeds_the_ceiling(host_bytes: int) -> None:
    search = OfflineSearch(scarce(host_bytes))
    ceiling = BlockCeilings(search.question, search.times).ceiling()
    best = search.best(AUTO)
    assert ceiling is not None
    assert best is not None
    assert best.candidate.on_disk
    assert 0.35 * ceiling.tokens_per_s < best.tokens_per_s <= ceiling.tokens_per_s


def test_terms_know_of_reads() -> None:
    question = scarce(8 * GIB)
    search = OfflineSearch(question)
    candidate = BlockCandidate(2, 8, 0, 2, 2, on_disk=6)
    terms = share_terms(search.times, candidate)
    assert terms.reads_s == pytest.approx(6 * LAYER_BYTES / DISK)
    expected = search.times.bound.decode_s(candidate)
    assert longest_s(terms, mean_work(question, candidate)) == pytest.approx(expected, rel=0.03)
    assert share_terms(search.times, replace(candidate, on_disk=0)).reads_s == 0.0
    plan = offline_plan(search, candidate, adapts=True)
    assert plan.terms is not None
    assert replace(plan.terms, most_pinned_rows=None) == terms
    assert OfflinePlan.from_json(plan.to_json()) == plan
    slower = as_measured(question.hardware, BlockFactors(disk=2.0)).host
    assert slower.disk_bytes_per_s == DISK / 2
