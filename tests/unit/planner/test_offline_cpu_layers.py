"""Whole layers left to the CPU in plans of batch jobs: their cost, and where they are chosen."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.planner.questions import ask, short

from tandem.engine.sizing.block_memory import plan_block_memory
from tandem.engine.sizing.capacities import Capacities
from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.answer import offline_answer, offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question
from tandem.spec.dtype import DType
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.units import GIB

LLAMA = short(plannable_spec("llama-3.1-70b"), 8)
LAYER_BYTES = layer_matrix_bytes(LLAMA, Precision.uniform(DType.FLOAT16))
AUTO = OFFLINE_POLICIES["auto"]
WITHOUT = replace(AUTO, name="without", computes_layers=False)


def asked(requests: int = 16) -> Question:
    """Beside embeddings and head, memory for two slots of layers, but not for two of MLPs and all
    of attention's maps.
    """
    question = ask(LLAMA, "rtx4090", "server-genoa", prompt="512", generate="65", requests=requests)
    return replace(question, device_bytes=17 * GIB // 2)


def lending(lent: int, batches: int = 1, **rows: Any) -> BlockCandidate:
    return replace(BlockCandidate(batches, 8, 4, 0, 0, lent=lent), **rows)


def test_only_layers_that_are_not_left_to_the_cpu_cross_the_link() -> None:
    search = OfflineSearch(asked())
    link = search.question.hardware.link.h2d_bytes_per_s
    host = search.question.hardware.host
    all_brought = search.times.time(lending(0)).decode
    assert all_brought.period_s == pytest.approx(8 * LAYER_BYTES / link, rel=0.03)
    some = search.times.time(lending(2)).decode
    assert some.h2d_s == pytest.approx(6 * LAYER_BYTES / link, rel=0.02)
    stay = search.times.time(lending(6)).decode  # two are in the slots and stay there
    read_s = 6 * LAYER_BYTES / host.memory_bandwidth_bytes_per_s
    assert stay.h2d_s < 0.01 * all_brought.h2d_s
    assert read_s < stay.cpu_s < 1.1 * read_s
    assert stay.period_s < 0.5 * all_brought.period_s


@pytest.mark.parametrize("rows", [
    {"resident_rows": 4}, {"resident_rows": 0, "streamed_rows": 4},
    {"resident_rows": 0, "cpu_rows": 4}, {"resident_rows": 1, "streamed_rows": 2, "cpu_rows": 2},
])  # fmt: skip
@pytest.mark.parametrize(("lent", "batches"), [(0, 1), (2, 1), (6, 1), (3, 4)])
def test_no_pass_is_shorter_than_its_bound(lent: int, batches: int, rows: dict[str, int]) -> None:
    search = OfflineSearch(asked())
    candidate = lending(lent, batches, **rows)
    time = search.times.time(candidate)
    # the bound has all but activations between two layers, and what waits for these
    assert 1 <= time.decode.period_s / search.times.bound.decode_s(candidate) < 1.35
    link = search.question.hardware.link.h2d_bytes_per_s
    assert time.prefill.h2d_s >= 8 * LAYER_BYTES / link  # prompts are the accelerator's


@pytest.mark.parametrize("mlps", [False, True])
def test_the_cpu_begins_with_the_first_batch_behind_what_stays(mlps: bool) -> None:
    """So that it works for all of a pass but the first batch's way through two layers."""
    search = OfflineSearch(asked())
    one, two = (lending(4, each, streamed=6, mlps=mlps) for each in (1, 2))

    def computed(candidate: BlockCandidate) -> tuple[int, ...]:
        return candidate.cpu_mlps(8) if mlps else candidate.cpu_layers(8)

    assert computed(one) == (3, 5, 6, 7)
    assert computed(two) == (2, 3, 5, 7)
    assert len(two.placement(8)) == 5  # two that stay, two of the CPU's, and so on
    passed, alone = search.times.time(two).decode, search.times.time(one).decode
    assert passed.accelerator_s > 1.9 * alone.accelerator_s
    assert passed.period_s - passed.cpu_s < 0.65 * (alone.period_s - alone.cpu_s)
    assert computed(lending(3, 2, streamed=6, mlps=mlps)) == (3, 6, 7)  # others come: spread


def test_the_plan_has_room_for_what_the_cpu_computes_with() -> None:
    question = asked()
    search = OfflineSearch(question)
    mlps = replace(lending(6), mlps=True)
    plain, lent, apart = (
        search.footprint.host(each, prompts_on_host=False)
        for each in (lending(0), lending(6), mlps)
    )
    assert plain.weights == lent.weights == 8 * LAYER_BYTES
    assert lent.workspace > apart.workspace > plain.workspace
    plan = offline_plan(search, lending(6))
    assert (plan.cpu_layers, plan.cpu_mlps) == ((2, 3, 4, 5, 6, 7), ())
    assert {run.home for run in plan.weights} == {"host"}
    room = Capacities(question.device_bytes, question.host_bytes, real=True)
    memory = plan_block_memory(plan, LLAMA, question.precision, room)
    rows = {(entry.location, entry.label): entry.predicted_bytes for entry in memory.ledger.entries}
    assert rows["host", "weights"] == plan.host.weights_bytes
    assert rows["device", "weights"] == plan.accelerator.weights_bytes
    assert rows["host", "staging"] + rows["host", "cpu layer scratch"] == lent.workspace


def test_layers_are_the_cpu_s_where_attention_s_maps_do_not_fit_either() -> None:
    search = OfflineSearch(asked())
    best, without = search.best(AUTO), search.best(WITHOUT)
    assert best is not None
    assert without is not None
    assert best.candidate.lent
    assert not best.candidate.mlps
    assert best.tokens_per_s > 1.5 * without.tokens_per_s
    ceiling = BlockCeilings(search.question, search.times).ceiling()
    assert ceiling is not None
    assert 0.8 * ceiling.tokens_per_s < best.tokens_per_s <= ceiling.tokens_per_s
    found = offline_answer(search.question)
    assert found.plan.cpu_layers
    assert "on the CPU where no prompt is read" in found.chosen.candidate.describe(8)


def test_nothing_is_recomputed_beside_them_and_few_policies_have_them() -> None:
    search = OfflineSearch(asked())
    made = lending(2, resident_rows=0, streamed_rows=4)
    assert search.candidates.possible(made, AUTO)
    assert not search.candidates.possible(replace(made, recomputed_tokens=256), AUTO)
    for policy in OFFLINE_POLICIES.values():
        lends = any(each.lent and not each.mlps for each in search.candidates.of(policy))
        assert lends == (policy.name in ("auto", "park-egger"))
    assert not any(each.lent and not each.mlps for each in search.candidates.of(WITHOUT))


def test_park_and_egger_leave_linear_maps_of_whole_layers_to_the_cpu() -> None:
    question = asked()
    found = offline_answer(question, "park-egger")
    candidate = found.chosen.candidate
    assert (candidate.streamed, candidate.resident_rows) == (8, 0)
    assert 0 < candidate.lent == len(found.plan.cpu_layers)
    assert f"and linear maps of whole layers, here of {candidate.lent}" in str(found.split)
    fewer = replace(OFFLINE_POLICIES["park-egger"], computes_layers=False)
    without = OfflineSearch(question).best(fewer)
    assert without is not None
    assert found.chosen.tokens_per_s > 1.5 * without.tokens_per_s
    assert found.chosen.tokens_per_s <= offline_answer(question).chosen.tokens_per_s
    assert candidate.describe(8).startswith(f"weights streamed and {candidate.lent} layers on the")
