"""The ways of preempted requests, held against each other."""

from tandem.bench.preemption import MODES, PreemptionCase, run_preemption
from tandem.bench.records import BenchRow


def rows_of(case: PreemptionCase, metric: str) -> dict[str, float]:
    said: list[str] = []
    rows: tuple[BenchRow, ...] = run_preemption((case,), said.append)
    assert len(said) == len(MODES)
    return {row.variant: row.value for row in rows if row.metric == metric}


def test_of_a_pair_the_second_is_preempted_once_whatever_becomes_of_it() -> None:
    case = PreemptionCase("llama-2-7b", "rtx4090", 2, 12, "300", "120", 2)
    assert rows_of(case, "preemptions") == dict.fromkeys(MODES, 1.0)


def test_a_slower_link_takes_longer_to_copy_and_not_to_compute() -> None:
    fast = PreemptionCase("llama-2-7b", "rtx4090", 2, 12, "300", "120", 2)
    slow = PreemptionCase("llama-2-7b", "rtx4090", 2, 12, "300", "120", 2, link=0.05)
    before, after = rows_of(fast, "time of a request"), rows_of(slow, "time of a request")
    assert after["swap"] > before["swap"]
    assert after["recompute"] - before["recompute"] < after["swap"] - before["swap"]
