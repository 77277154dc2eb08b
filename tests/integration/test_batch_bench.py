"""The batch bench end to end on a tiny model: both engines answer every request, and alike."""

import signal

import pytest

from tandem.bench.batch.suite import BatchBench, run_batch
from tandem.bench.batch.work import BatchWork
from tandem.bench.host_model import LlamaShape
from tandem.jobs.batch import Batch, End

TINY = LlamaShape("tiny shape", 64, 2, 4, 2, 96, 4096)


def test_a_job_s_answers_are_those_of_transformers_in_padded_batches() -> None:
    work = BatchWork(7, (3, 9), (1, 12), 4096)
    rows = run_batch((BatchBench(TINY, work, 3, (2, 3), 4),), lambda _: None)
    found = {(row.variant, row.metric): row for row in rows}
    names = ("tandem", "transformers, batches of 2", "transformers, batches of 3")
    for name in names:
        row = found[name, "job throughput"]
        assert row.value > 0
        assert row.bound is not None
    assert {row.case for row in rows} == {"tiny shape, float32, 7 requests, 3-9 in, 1-12 out"}
    assert found["tandem", "answers equal to transformers"].value == 1.0
    ratios = [row for row in rows if row.metric.startswith("job throughput over transformers, ")]
    assert len(ratios) == 2


def test_a_signal_ends_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "run", lambda *_: End(is_done=False, stopped_by=signal.SIGTERM))
    work = BatchWork(2, (3, 9), (1, 2), 4096)
    with pytest.raises(KeyboardInterrupt):
        run_batch((BatchBench(TINY, work, 1, (2,), 4),), lambda _: None)


def test_equal_seeds_ask_for_equal_requests() -> None:
    work = BatchWork(5, (2, 30), (4, 8), 100)
    assert work.drawn(1) == work.drawn(1) != work.drawn(2)
    for each in work.drawn(3):
        assert 2 <= len(each.prompt) <= 30
        assert 4 <= each.new_tokens <= 8
        assert all(3 <= token < 100 for token in each.prompt)
