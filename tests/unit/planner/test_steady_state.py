"""What a sweep takes is what one of many takes, also where loads or reads take long to settle."""

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.virtual_time import steady_sweep
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.sweep_load import decode_load
from tandem.planner.sweeps import Sweeps

LENT = Elsewhere(18, embedding=True).lending(11)
# its first sweep, lived through in part, left the next one 6% short
READ = Elsewhere(35, on_disk=10, embedding=True)


@pytest.mark.parametrize(
    ("question", "candidate", "chunk"),
    [
        (
            ask("mixtral-8x7b", "l40s", "server-genoa"),
            Candidate("ride-along", 0, 0, 200).with_elsewhere(LENT),
            0,
        ),
        (
            ask("qwen3-30b-a3b", "rtx4090"),
            Candidate("gpu-only", 0, 90, 0).with_elsewhere(READ),
            713,
        ),
    ],
    ids=["lent to the CPU", "read from disk"],
)
def test_a_sweep_takes_as_long_as_one_of_many(
    question: Question, candidate: Candidate, chunk: int
) -> None:
    search = Search(question)
    sweeps = Sweeps(question, search.footprint, search.schedules)
    load = decode_load(candidate, question.lengths, chunk)
    each = sweeps.each_operation(candidate.elsewhere, load)[-1]
    pool = question.hardware.host.pool_bytes_per_s
    found, many = sweeps.time(candidate.elsewhere, load), steady_sweep([each] * 8, pool, cycle=4)
    assert found.period_s == pytest.approx(many.period_s, rel=2e-3)
    assert found.disk_s == pytest.approx(many.disk_s, rel=2e-3)
