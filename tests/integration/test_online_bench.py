"""The online bench end to end on a tiny cell: how it is put together, not how fast it is."""

import os
from dataclasses import replace

import pytest
from tests.fakes.paced import TINY as MODEL

from tandem.kernels import native

if not native.available() or len(os.sched_getaffinity(0)) < 2:
    pytest.skip("needs compiled kernels and two cores", allow_module_level=True)

from tandem.bench.online.cell import Load, OnlineCell
from tandem.bench.online.rows import describe, figures_of, rows_of
from tandem.bench.online.suite import CellOutcome, OnlineBench, run_online
from tandem.bench.online.window import MIN_PERIODS
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import HeadShape
from tandem.probes.linear_cases import FLOAT16
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware

SMALL = load_hardware("small")
EFFORT = Effort(
    rounds=1,
    kinds=(FLOAT16,),
    sides=(64, 128),
    rows=(1, 8),
    card_rows=(1, 8, 65),
    heads=HeadShape(4, 2, 16),
    kv=(DType.FLOAT16,),
    batches=(1, 8),
    contexts=(16, 100),
    memory_bytes=1 << 20,
    link_bytes=(4096, 1 << 20),
    disk_bytes=64 << 20,
    trips=10,
)


@pytest.fixture(scope="module")
def outcome() -> CellOutcome:
    """Room for a few sequences on the accelerator and for more on the host."""
    hardware = replace(
        SMALL,
        accelerator=replace(SMALL.accelerator, memory_bytes=80 << 20),
        host=replace(SMALL.host, memory_bytes=4 << 20),
    )
    cell = OnlineCell(
        "tiny",
        MODEL,
        MODEL,
        Load(1, 40),
        hardware,
        Perturbation(1, 0.3, 8, 0.02),
        2048,
        cache_bytes=1 << 16,
    )
    bench = OnlineBench(("simple", "rendezvous"), pairs=2, window_s=0.05, effort=EFFORT)
    (found,) = run_online(bench, [cell], lambda _: None)
    return found


def test_all_programs_of_real_time_were_replayed_with_the_right_tokens(
    outcome: CellOutcome,
) -> None:
    assert set(outcome.replays) == {each.policy for each in outcome.planned if each.plan}
    for policy, windows in outcome.windows.items():
        counted = sum(window.tokens_per_s * window.wall_s for window in windows)
        assert outcome.replays[policy].tokens > counted > 0  # and those between windows


def test_every_policy_is_planned_from_the_probes_and_executed(outcome: CellOutcome) -> None:
    assert [each.policy for each in outcome.planned] == [
        "auto",
        "gpu-only",
        "simple",
        "rendezvous",
    ]
    assert "measured" in outcome.bed.question.hardware.name
    assert outcome.bed.question.measured is not None
    for each in outcome.planned:
        assert each.option is not None
        windows = outcome.windows[each.policy]
        assert len(windows) == 2
        for window in windows:
            assert window.tokens_per_s > 0
            assert window.wall_s >= 0.05
            assert window.wall_s >= MIN_PERIODS * window.period_s * 0.999
            assert window.report.accel_busy > 0
            assert (window.report.cpu_busy > 0) == (each.option.candidate.host_rows > 0)
    assert any(window.report.cpu_busy for window in outcome.windows["simple"])


def test_policies_with_equal_plans_share_their_windows(outcome: CellOutcome) -> None:
    plans = {each.policy: each.plan for each in outcome.planned}
    for one in plans:
        for other in plans:
            same = outcome.windows[one] == outcome.windows[other]
            assert (plans[one] == plans[other]) == same


def test_every_figure_says_paced_and_whether_it_is_valid(outcome: CellOutcome) -> None:
    rows = rows_of(outcome)
    assert all(row.variant.startswith("paced ") for row in rows)
    assert {"predicted over executed", "simulated over executed"} <= {row.metric for row in rows}
    by_name = {(row.variant, row.metric): row for row in rows}
    for each in figures_of(outcome):
        share = by_name[f"paced {each.policy}", "windows valid"].value
        assert share == 1 - each.invalid / 2
        assert (share < 1) == bool(each.reasons)
        told = f"INVALID in {each.invalid} of 2 windows"
        assert (told in "\n".join(describe(outcome))) or not each.invalid


def test_what_the_host_s_attention_hides_behind_is_told(outcome: CellOutcome) -> None:
    rows = {(row.variant, row.metric): row.value for row in rows_of(outcome)}
    for each in figures_of(outcome):
        idle = rows[f"paced {each.policy}", "accelerator idle"]
        busy = [window.report.accel_busy for window in each.windows]
        assert min(busy) - 0.15 <= 1 - idle <= max(busy) + 0.15  # of somewhat other moments
        attended = any(window.report.cpu_busy > 0 for window in each.windows)
        hidden = rows.get((f"paced {each.policy}", "host attention hidden"))
        assert (hidden is not None) == attended
        assert hidden is None or 0 <= hidden <= 1 + 1e-9
