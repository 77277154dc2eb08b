"""`tandem bench calibration` on one cell: wrong prices cost something, and are made up for."""

from tandem.bench.online.calibrated import (
    LEAST_SHARE,
    CalibrationBench,
    CalibrationCell,
    Deviation,
    describe,
    rows_of,
    run_calibration,
)

TOKENS = "tokens equal to a plain model's, replayed"

CELL = CalibrationCell("rtx4090-scaled", "llama-2-7b", 512, 16, 32)
FAR_OFF = Deviation("all rates off by up to 90%", terms=0.9)
BENCH = CalibrationBench((CELL,), (FAR_OFF,), truths=1, first_seed=12)
"""A truth far off, under which prices as described lead astray. Since cohorts join ahead none of
some fifty nearer ones was found that costs `auto` more than 2%."""


def test_calibration_reaches_what_an_informed_engine_makes() -> None:
    told: list[str] = []
    outcomes = run_calibration(BENCH, told.append)
    assert told == [f"{CELL}; {FAR_OFF}"]
    (found,) = outcomes[CELL, FAR_OFF]
    assert found.share_before < 0.99 < found.share
    assert found.share >= LEAST_SHARE
    rows = {(row.variant, row.metric): row for row in rows_of(BENCH, outcomes)}
    share = rows["virtual calibrated", "share of the informed rate"]
    assert (share.value, share.bound) == (found.calibrated / found.informed, LEAST_SHARE)
    assert rows["virtual as described", "throughput"].value == found.as_described
    assert f"{found.share:.3f} calibrated" in "\n".join(describe(outcomes))
    assert "as aimed for: 0.95" in "\n".join(describe(outcomes))
    assert found.replay is not None
    assert found.replay.tokens == rows["virtual all three", TOKENS].value > 3 * BENCH.steps
    assert f"{found.replay.tokens:,} tokens of 144 requests" in describe(outcomes)[-1]
