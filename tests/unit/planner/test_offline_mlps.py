"""MLPs left to the CPU in plans of batch jobs: their cost by hand, and where they are chosen."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short, with_dense

from tandem.engine.sizing.block_memory import plan_block_memory
from tandem.engine.sizing.capacities import Capacities
from tandem.models.catalogue import plannable_spec
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.offline.answer import offline_answer, offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question
from tandem.spec.dtype import DType
from tandem.spec.parameters import mlp_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.units import GIB

OPT = short(plannable_spec("opt-6.7b"), 8)
MLP_BYTES = 8 * 4096**2 * 2
AUTO = OFFLINE_POLICIES["auto"]
NO_MLPS = replace(AUTO, name="without", apart=False, computes=False, computes_layers=False)


def asked(requests: int = 8, **changes: object) -> Question:
    """A link of 24 GB/s, and memory for half of the layers."""
    question = ask(OPT, "a10g", "server-genoa", prompt="512", generate="65", requests=requests)
    return replace(question, device_bytes=5 * GIB // 2, **changes)


def lending(lent: int, batches: int = 1, rows: int = 4) -> BlockCandidate:
    return BlockCandidate(batches, 8, rows, 0, 0, mlps=True, lent=lent)


def test_only_mlps_that_are_not_left_to_the_cpu_cross_the_link() -> None:
    assert mlp_matrix_bytes(OPT, Precision.uniform(DType.FLOAT16)) == MLP_BYTES
    search = OfflineSearch(asked())
    link = 24e9
    all_brought = search.times.time(lending(0)).decode
    assert all_brought.period_s == pytest.approx(8 * MLP_BYTES / link, rel=0.03)
    some = search.times.time(lending(2)).decode
    assert some.h2d_s == pytest.approx(6 * MLP_BYTES / link, rel=0.02)
    stay = search.times.time(lending(6)).decode  # two are in the slots and stay there
    read_s = 6 * MLP_BYTES / search.question.hardware.host.memory_bandwidth_bytes_per_s
    assert stay.h2d_s < 0.01 * all_brought.h2d_s
    assert read_s < stay.cpu_s < 1.1 * read_s
    assert stay.period_s < 0.5 * all_brought.period_s
    for batches, lent in ((1, 0), (1, 2), (1, 6), (4, 3)):
        candidate = lending(lent, batches)
        time = search.times.time(candidate)
        assert time.decode.period_s >= search.times.bound.decode_s(candidate)
        assert time.prefill.h2d_s >= 8 * MLP_BYTES / link  # prompts are the accelerator's


def test_of_several_batches_the_cpu_computes_while_the_accelerator_does() -> None:
    search = OfflineSearch(asked(requests=64))
    alone, four = (search.times.time(lending(6, n)).decode for n in (1, 4))
    assert alone.period_s > alone.cpu_s + 0.9 * alone.accelerator_s
    assert four.period_s < four.cpu_s + 0.75 * four.accelerator_s


def test_the_plan_has_room_for_what_the_cpu_computes_with() -> None:
    question = asked()
    search = OfflineSearch(question)
    plain, lent = (
        search.footprint.host(each, prompts_on_host=False) for each in (lending(0), lending(6))
    )
    assert plain.weights == lent.weights == 8 * MLP_BYTES
    assert lent.workspace > plain.workspace
    plan = offline_plan(search, lending(6), adapts=True)
    assert plan.terms is None
    assert plan.cpu_mlps == (2, 3, 4, 5, 6, 7)
    room = Capacities(question.device_bytes, question.host_bytes, real=True)
    memory = plan_block_memory(plan, OPT, question.precision, room)
    rows = {(entry.location, entry.label): entry.predicted_bytes for entry in memory.ledger.entries}
    assert rows["host", "weights"] == plan.host.weights_bytes
    assert rows["device", "weights"] == plan.accelerator.weights_bytes
    assert rows["host", "staging"] + rows["host", "cpu layer scratch"] == lent.workspace


def test_small_jobs_leave_mlps_to_the_cpu_and_are_faster_by_it() -> None:
    search = OfflineSearch(asked())
    only_mlps = replace(AUTO, name="mlps", computes_layers=False)
    best, without = search.best(only_mlps), search.best(NO_MLPS)
    assert best is not None
    assert without is not None
    assert best.candidate.lent
    assert not without.candidate.mlps
    assert best.tokens_per_s > 1.5 * without.tokens_per_s
    ceiling = BlockCeilings(search.question, search.times).ceiling()
    assert ceiling is not None
    assert best.tokens_per_s <= ceiling.tokens_per_s
    assert offline_plan(search, best.candidate).cpu_mlps
    found = offline_answer(search.question)
    assert found.chosen.candidate.lent
    assert "on the CPU where no prompt is read" in found.chosen.candidate.describe(8)


def test_of_many_layers_no_more_mlps_are_lent_than_pass_through_slots() -> None:
    """Numbers of them are tried in steps of a sixteenth of the layers, 4 here; over so slow a link
    as many as can be are best.
    """
    deep = plannable_spec("opt-66b")
    question = ask(deep, "a100-80", "server-genoa", prompt="512", generate="65", requests=4)
    link = replace(question.hardware.link, h2d_bytes_per_s=1e9)
    slow = replace(question, hardware=replace(question.hardware, link=link))
    tried = set[tuple[int, int]]()
    for device_gib in range(116, 126):
        search = OfflineSearch(replace(slow, device_bytes=device_gib * GIB))
        tried |= {(each.streamed, each.lent) for each in search.candidates.of(AUTO) if each.lent}
    assert any((streamed - STREAM_SLOTS) % 4 == 3 for streamed, _ in tried)
    assert all(0 < lent <= streamed - STREAM_SLOTS for streamed, lent in tried)


def test_large_blocks_keep_the_cpu_out_of_it() -> None:
    question = asked(requests=2000)
    slow = replace(question.hardware.host, flops_per_s=2e11)
    question = replace(question, hardware=replace(question.hardware, host=slow))
    best = OfflineSearch(question).best(AUTO)
    assert best is not None
    assert best.candidate.streamed
    assert not best.candidate.lent


def test_other_policies_and_models_with_some_dense_layers_do_not() -> None:
    search = OfflineSearch(asked())
    for policy in OFFLINE_POLICIES.values():
        lends = any(candidate.mlps for candidate in search.candidates.of(policy))
        assert lends == (policy.name == "auto")
    without = replace(AUTO, computes=False)
    assert not any(c.lent and c.mlps for c in search.candidates.of(without))
    mixture = with_dense(short(plannable_spec("qwen3-30b-a3b"), 6), 0)
    candidates = OfflineSearch(asked(model=mixture)).candidates
    assert not any(candidate.mlps for candidate in candidates.of(AUTO))


def test_what_recomputes_prefixes_may_have_mlps_alone_elsewhere() -> None:
    """On a slow host: more is left of the link where attention's maps stay."""
    model = short(plannable_spec("opt-30b"), 12)
    question = ask(model, "a100-40", "kvpr", prompt="1024", generate="32", requests=128)
    hardware = question.hardware
    slow = replace(hardware.host, memory_bandwidth_bytes_per_s=45e9, flops_per_s=0.35e12)
    question = replace(question, hardware=replace(hardware, host=slow), device_bytes=8 * GIB)
    search = OfflineSearch(question)
    best = search.best(AUTO)
    without = OfflineSearch(question).best(replace(AUTO, name="without", apart=False))
    assert best is not None
    assert without is not None
    assert best.candidate.mlps
    assert best.candidate.recomputed_tokens
    assert without.candidate.recomputed_tokens
    assert best.tokens_per_s > 1.01 * without.tokens_per_s
    plan = offline_plan(search, best.candidate)
    assert {run.home for run in plan.weights} == {"host-mlp"}
    assert plan.recomputed_tokens == best.candidate.recomputed_tokens
