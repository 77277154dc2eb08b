"""Records of the paced bench, from an outcome made by hand: nothing is run."""

import pytest

from tandem.bench.host_probe import HostRates
from tandem.bench.paced import LLAMA_8B, PacedOutcome, describe, rows_of
from tandem.bench.paced_cell import CellResult, Load, PacedCell
from tandem.runtime.paced.report import PacedReport
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware

CELL = PacedCell(load_hardware("small"), LLAMA_8B, DType.BFLOAT16, 1200, (1,))


def report(reasons: tuple[str, ...] = ()) -> PacedReport:
    return PacedReport(
        valid=not reasons,
        reasons=reasons,
        wall_s=1.0,
        poll_lateness_p95_s=1e-5,
        submit_lateness_p95_s=0.0,
        start_lateness_p95_s=2e-5,
        stage_s=1e-3,
        busy_share=0.1,
        accel_busy=0.5,
        h2d_busy=0.0,
        d2h_busy=0.0,
        weights_busy=0.0,
        cpu_busy=0.9,
        contention="modelled",
        host_sets=10,
        host_distinct_bytes=1000,
        host_read_bytes=900,
        cache_bytes=100,
    )


def result(strategy: str, rate: float, reasons: tuple[str, ...] = ()) -> CellResult:
    spread = (rate * 0.9, rate * 1.1)
    return CellResult(
        strategy, Load(30, 10), rate, spread, 0.03, 1, 0, "paced emulator of X", report(reasons)
    )


OUTCOME = PacedOutcome(
    CELL,
    HostRates(12e9, 6e9),
    0.25,
    (result("gpu-only", 1000.0), result("rendezvous", 1125.0, ("polls were late",))),
    (),
)


def test_the_gain_is_held_against_its_bound() -> None:
    rows = {(row.variant, row.metric): row for row in rows_of(OUTCOME)}
    gain = rows["paced rendezvous", "gain over gpu-only"]
    assert gain.value == pytest.approx(0.125)
    assert gain.fraction == pytest.approx(0.5)
    throughput = rows["paced rendezvous", "decode throughput"]
    assert throughput.bound == pytest.approx(1250)
    assert throughput.spread == pytest.approx((1012.5, 1237.5))
    alone = rows["paced gpu-only", "decode throughput"]
    assert alone.bound == pytest.approx(2000)  # the accelerator was busy half of the time
    assert ("paced gpu-only", "gain over gpu-only") not in rows


def test_every_row_says_paced_and_whether_it_is_valid() -> None:
    rows = rows_of(OUTCOME)
    assert all(row.variant.startswith("paced ") for row in rows)
    valid = {row.variant: row.value for row in rows if row.metric == "run valid"}
    assert valid == {"paced gpu-only": 1.0, "paced rendezvous": 0.0}


def test_people_are_told_what_not_to_believe() -> None:
    text = "\n".join(describe(OUTCOME))
    assert "contention modelled" in text
    assert "INVALID: polls were late" in text
    assert "+12.5% of gpu-only, +50% of the bound" in text
