"""One decode cycle, operation by operation."""

from collections import Counter
from itertools import pairwise

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.program import OpKind, Part, Queue
from tandem.planner.candidate import Candidate
from tandem.planner.cycle import Cycle, decode_cycle
from tandem.planner.search.search import Search

LAYERS = 12
QUESTION = ask(short(plannable_spec("llama-3.1-8b"), LAYERS), requests=64)
CANDIDATES = {
    "resident": Candidate("gpu-only", 0, 40, 0),
    "streamed": Candidate("gpu-only", 8, 40, 0),
    "hosted": Candidate("ride-along", 6, 10, 30),
    "split": Candidate("ride-along", 0, 0, 12, device_share=0.4),
    "cohort": Candidate("rendezvous", 4, 30, 20),
    "lent": Candidate("ride-along", 8, 10, 30, on_cpu=4, how="host"),
    "on the CPU": Candidate("ride-along", 0, 10, 30, on_cpu=5, how="cpu"),
    "all on the CPU": Candidate("gpu-only", 0, 10, 0, on_cpu=LAYERS, how="cpu"),
    "MLPs": Candidate("gpu-only", 0, 40, 0, on_cpu=7, how="cpu-mlp"),
    "MLPs streamed": Candidate("ride-along", 10, 10, 30, mlps=True),
    "MLPs lent": Candidate("ride-along", 10, 10, 30, on_cpu=4, how="host", mlps=True),
    "MLPs beside a cohort": Candidate("rendezvous", 4, 30, 20, mlps=True),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    return CANDIDATES[request.param]


@pytest.fixture
def cycle(candidate: Candidate) -> Cycle:
    return decode_cycle(QUESTION, candidate)


def test_a_cycle_is_the_predicted_sweep(candidate: Candidate, cycle: Cycle) -> None:
    decode = Search(QUESTION).predictor.predict(candidate).decode
    assert cycle.period_s == pytest.approx(decode.period_s, rel=1e-3)
    accelerator, cpu = (cycle.busy(q, 0.0, cycle.period_s) for q in (Queue.ACCEL, Queue.CPU))
    assert accelerator == pytest.approx(decode.accelerator_s / decode.period_s, rel=1e-2)
    assert cpu == pytest.approx(decode.cpu_s / decode.period_s, rel=1e-2)


def test_queues_run_one_operation_at_a_time_and_all_layers_once(
    candidate: Candidate, cycle: Cycle
) -> None:
    for queue in Queue:
        for before, after in pairwise(cycle.on(queue)):
            assert before.end_s <= after.begin_s + 1e-12
    assert all(span.begin_s < cycle.period_s and span.end_s > 0 for span in cycle.spans)
    computed = [span.op for span in cycle.spans if span.op.kind is OpKind.STAGE]
    on_cpu = Counter(op.part for op in computed if op.queue is Queue.CPU)
    stages = Counter(op.part for op in computed if op.part is not Part.RESIDUAL)
    away = candidate.elsewhere
    whole, mlps = away.whole_on_cpu, away.mlps_on_cpu
    if away.mlps:
        mlps += away.lent
    else:
        whole += away.lent
    ends = Counter({Part.POST: LAYERS - mlps, Part.OUTPUT: mlps, Part.MLP: mlps})
    assert stages == Counter({Part.EMBED: 1, Part.PRE: LAYERS, Part.HEAD: 1}) + ends
    assert on_cpu == +Counter({Part.PRE: whole, Part.POST: whole, Part.MLP: mlps})
    loads = {span.op.layer for span in cycle.on(Queue.WEIGHTS)}
    assert len(loads) == away.streamed - away.lent


def test_attention_of_rows_that_ride_along_runs_between_the_stages_of_their_layer() -> None:
    cycle = decode_cycle(QUESTION, CANDIDATES["hosted"])
    stages = {
        (span.op.layer, span.op.part): span
        for span in cycle.on(Queue.ACCEL)
        if span.op.kind is OpKind.STAGE
    }
    hosted = [span for span in cycle.on(Queue.CPU) if span.op.kind is OpKind.ATTEND]
    assert [span.op.layer for span in hosted] == list(range(LAYERS))
    for span in hosted:
        assert span.begin_s >= stages[span.op.layer, Part.PRE].end_s
        assert span.end_s <= stages[span.op.layer, Part.POST].begin_s
