"""The online bench in the simulator alone: whole models on the papers' machines."""

from dataclasses import replace

import pytest
from tests.fakes.paced import TINY as MODEL

from tandem.bench.online.arrivals import Arrivals
from tandem.bench.online.cell import Load, OnlineCell
from tandem.bench.online.suite import OnlineBench
from tandem.bench.online.whole import WholeOutcome, describe, paper_cells, rows_of, run_whole
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.hardware_file import load_hardware

SMALL = load_hardware("small")
ARRIVALS = Arrivals((0.2, 1.5), 30)


@pytest.fixture(scope="module")
def outcome() -> WholeOutcome:
    card = replace(SMALL.accelerator, memory_bytes=80 << 20)
    hardware = replace(SMALL, accelerator=card, host=replace(SMALL.host, memory_bytes=4 << 20))
    cell = OnlineCell("tiny", MODEL, MODEL, Load(20, 12), hardware, Perturbation(), 64)
    bench = OnlineBench(("simple", "gpu-only/16"), window_s=0.01, arrivals=ARRIVALS)
    (found,) = run_whole(bench, [cell], lambda _: None)
    return found


def test_the_papers_machines_have_whole_models() -> None:
    cells = list(paper_cells([Load(1, 500), Load(512, 64)]))
    assert len(cells) == 8
    assert len({cell.hardware.name for cell in cells}) == 4
    assert all(cell.model.num_layers == cell.whole.num_layers == 32 for cell in cells)
    assert all(cell.max_num_batched_tokens == 2048 for cell in cells)
    assert "cut to" not in "".join(map(str, cells))


def test_each_policy_is_simulated_below_what_no_plan_exceeds(outcome: WholeOutcome) -> None:
    rows = list(rows_of(outcome))
    assert all(row.variant.startswith("simulated ") for row in rows)
    kept_full = {
        row.variant: row for row in rows if row.metric == "throughput" and row.bound is not None
    }
    assert len(kept_full) == 4
    for row in kept_full.values():
        assert row.bound == outcome.ceiling
        assert 0 < row.value < 1.02 * outcome.ceiling
    predicted = [row.value for row in rows if row.metric == "predicted over simulated"]
    assert predicted == pytest.approx([1.0] * 4, abs=0.3)
    assert outcome.tokens_per_s["gpu-only/16"] < outcome.tokens_per_s["gpu-only"]
    assert all(policy in "\n".join(describe(outcome)) for policy in outcome.tokens_per_s)


def test_requests_wait_where_more_come_than_are_served(outcome: WholeOutcome) -> None:
    for policies in {policies for _, policies, _ in outcome.points}:
        few, many = (seen for _, own, seen in outcome.points if own == policies)
        assert few.ttft.p99_s < many.ttft.p99_s
        assert few.tokens_per_s < many.tokens_per_s
    latencies = [row for row in rows_of(outcome) if row.unit == "s"]
    assert len(latencies) == 6 * len(outcome.points)
