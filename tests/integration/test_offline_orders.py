"""A job of several batches, by rows, by columns and by blocks of two, executed as predicted."""

from dataclasses import replace

import pytest

from tandem.bench.offline.cell import CellName, OfflineCell, make_cell
from tandem.bench.offline.job import Executed, execute
from tandem.bench.offline.plans import ask
from tandem.bench.online.cell import Load
from tandem.bench.online.selection import truth_of
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file

BATCHES, ROWS = 4, 10
CELL = make_cell(
    CellName("t4", "g4dn.4xlarge", "opt-6.7b", Load(256, 24), BATCHES * ROWS),
    6,
    truth_of(1, plain=True),
)
KV = {
    "resident": BlockCandidate(1, 6, ROWS, 0, 0),
    "streamed": BlockCandidate(1, 6, 0, ROWS, 0),
    "mixed": BlockCandidate(1, 6, 2, 3, 5),
    "beside-cpu-layers": BlockCandidate(1, 6, ROWS, 0, 0, lent=2),
}


@pytest.fixture(scope="module")
def search() -> OfflineSearch:
    return OfflineSearch(ask(CELL))


def run(cell: OfflineCell, option: BlockOption, search: OfflineSearch) -> Executed:
    plan = offline_plan(search, option.candidate)
    return execute(cell, offline_plan_file(cell.model_name, search.question, plan))


@pytest.mark.parametrize("kv", KV)
def test_a_job_of_several_batches_takes_as_long_as_predicted_in_any_order(
    search: OfflineSearch, kv: str
) -> None:
    weights: dict[int, float] = {}
    for batches in (1, 2, BATCHES):
        option = search.option(replace(KV[kv], batches=batches))
        assert option.prediction.rates.blocks == BATCHES // batches
        executed = run(CELL, option, search)
        assert executed.tokens == sum(shape.generated_tokens for shape in CELL.workload.requests)
        assert executed.wall_s == pytest.approx(option.prediction.rates.job_s, rel=0.05), batches
        weights[batches] = executed.passes_bytes
    # passes bring weights once for all batches of a block
    assert weights[1] > weights[2] > weights[BATCHES]
