"""A batch job's plan in real time beside virtual time: the same programs, whatever they took."""

from dataclasses import replace
from typing import Any

import pytest

from tandem.bench.offline.real_time import RealTimeJob, describe, rows_of, run_real_time
from tandem.bench.online.cell import Load
from tandem.bench.online.measured import effort_for
from tandem.bench.online.selection import truth_of
from tandem.cli import bench_offline
from tandem.kernels import native
from tandem.models.catalogue import plannable_spec
from tandem.spec.errors import ConfigError

EFFORT = replace(
    effort_for(plannable_spec("llama-2-7b")),
    rounds=1,
    sides=(256, 1024),
    rows=(1, 8, 64),
    batches=(1, 16),
    contexts=(64, 512),
    memory_bytes=16 << 20,
    link_bytes=(4096, 16 << 20),
    trips=20,
)


@pytest.mark.skipif(not native.available(), reason="the host is profiled by compiled kernels")
def test_a_job_s_programs_are_the_same_in_both_times() -> None:
    job = RealTimeJob(("flexgen",), load=Load(64, 6), requests=12, runs=2, effort=EFFORT)
    outcome = run_real_time(job, truth_of(1, plain=False), lambda _: None)
    wanted = sum(shape.generated_tokens for shape in outcome.cell.workload.requests)
    (run,) = outcome.runs
    assert len(run.real) == 2
    for real in run.real:
        assert real.tokens == run.virtual.tokens == wanted
        assert (real.passes, real.refills) == (run.virtual.passes, run.virtual.refills)
        assert real.rows == run.virtual.rows
        assert real.report.brought_bytes == pytest.approx(run.virtual.report.brought_bytes)
        assert real.wall_s > 0.5 * run.virtual.wall_s  # no faster than its queues
    rows = {row.metric: row for row in rows_of(outcome)}
    assert {row.variant for row in rows.values()} == {"paced flexgen"}
    valid = sum(real.report.valid for real in run.real)
    assert rows["runs valid"].value == valid / 2
    reached = sorted(real.tokens_per_s for real in run.real)
    assert rows["throughput"].spread == tuple(reached)
    ratio = rows["virtual time over executed"].value
    assert ratio == pytest.approx(run.virtual.tokens_per_s / (sum(reached) / 2))
    told = "\n".join(describe(outcome))
    assert told.count("invalid: ") == 2 - valid


@pytest.mark.parametrize("other", ["grid", "quick", "ablations", "few_bits"])
def test_it_has_one_cell_of_its_own(other: str) -> None:
    flag = other.replace("_", "-")
    given: dict[str, Any] = {"real_time": True, other: True}
    with pytest.raises(ConfigError, match=f"one cell of its own; leave --{flag} or --real-time"):
        bench_offline.offline(**given)
