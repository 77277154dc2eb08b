"""APEX's inequalities and thresholds, exactly; attainable gain and the continuum."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tandem.bench.papers.apex import apex_cells
from tandem.bench.papers.cells import Role
from tandem.cost.apex.inequality import (
    LEAST_THRESHOLD,
    LEAST_THRESHOLD_RATIO,
    DecodeTimes,
    PrefillTimes,
    decode_pipelining_pays,
    mixed_pipelining_pays,
    mixed_pipelining_pays_as_published,
    pipelining_threshold,
)
from tandem.cost.apex.overlap import (
    HostDecode,
    attainable_gain,
    interposed_gain,
    rendezvous_gain,
    request_gain,
    residual_bytes,
    switch_s,
    wait_saved,
)

positive = st.floats(0.01, 100)


def test_the_least_threshold_is_5_83_at_1_41() -> None:
    assert pytest.approx(5.828, abs=1e-3) == LEAST_THRESHOLD
    assert pytest.approx(1.414, abs=1e-3) == LEAST_THRESHOLD_RATIO
    assert pipelining_threshold(math.sqrt(2)) == pytest.approx(LEAST_THRESHOLD)
    ratios = [0.01 * step for step in range(1, 1000)]
    assert min(pipelining_threshold(ratio) for ratio in ratios) >= LEAST_THRESHOLD - 1e-12
    assert min(ratios, key=pipelining_threshold) == pytest.approx(1.41)
    with pytest.raises(ValueError, match="above 0"):
        pipelining_threshold(0.0)


def test_the_papers_7_5_holds_at_the_lower_end_only() -> None:
    assert pipelining_threshold(0.5) == 7.5
    assert pipelining_threshold(1.5) == pytest.approx(5.83, abs=0.01)


@given(positive, positive, positive, positive)
def test_inequality_5_is_inequality_6(
    linear: float, attention: float, accelerator: float, host: float
) -> None:
    threshold = pipelining_threshold(attention / linear)
    assume(abs(accelerator / host / threshold - 1) > 1e-6)
    times = DecodeTimes(linear, attention, accelerator, host)
    assert decode_pipelining_pays(times) == (accelerator / host < threshold)


@given(positive, positive, positive, positive)
def test_the_corrected_mixed_inequality_without_prefills_is_inequality_5(
    linear: float, attention: float, accelerator: float, host: float
) -> None:
    assume(abs(accelerator / host / pipelining_threshold(attention / linear) - 1) > 1e-6)
    times = DecodeTimes(linear, attention, accelerator, host)
    same = PrefillTimes(linear, attention)
    assert mixed_pipelining_pays(times, same) == decode_pipelining_pays(times)


def test_the_published_mixed_inequality_divides_by_too_short_a_cycle() -> None:
    """A host 100 times slower than the accelerator "pays" as soon as a prefill is long.

    The 202 tokens that the host computes in 202 s are divided by a cycle of 3 s.
    """
    times = DecodeTimes(1.0, 1.0, 100.0, 1.0)
    prefill = PrefillTimes(200.0, 1.0)
    assert (100 + 1 * (200 + 1 + 1)) / (2 * 1 + 1) >= 100 / 2
    assert mixed_pipelining_pays_as_published(times, prefill)
    # Corrected: 302 tokens in 202 s against 100 in 201 s.
    assert mixed_pipelining_pays(times, prefill)
    assert not mixed_pipelining_pays(times, PrefillTimes(1.0, 1.0))


def test_published_and_corrected_differ_where_the_window_is_not_the_cycle() -> None:
    times = DecodeTimes(1.0, 1.0, 100.0, 1.0)
    prefill = PrefillTimes(9.0, 1.0)  # window 11, cycle 3, alone 10
    assert not mixed_pipelining_pays_as_published(times, prefill)  # 111 / 3 < 100 / 2
    assert mixed_pipelining_pays(times, prefill)  # 111 / 11 > 100 / 10


def test_the_published_comparison_accepts_equals() -> None:
    times = DecodeTimes(
        linear_s=1.0, attention_s=1.0, accelerator_tokens_per_s=6, host_tokens_per_s=1
    )
    prefill = PrefillTimes(0.5, 1.5)
    assert (6 + 1 * 3.0) / 3 == 6 / 2
    assert mixed_pipelining_pays_as_published(times, prefill)


# --- overlap --------------------------------------------------------------------------------------

# A10G at 510 GB/s, an 8B model, 32 requests of 1,200 tokens; host at 35 GB/s.
LINEAR_S, ATTENTION_S, LAYERS = 0.86e-3, 0.31e-3, 32
SWEEP_S = LAYERS * (LINEAR_S + ATTENTION_S)
ALONE = 32 / SWEEP_S
DECODE = HostDecode(LAYERS, 1200 * 2 * 1024 * 2, 35e9, LINEAR_S)


def test_attainable_gain_is_bandwidth_times_sweep_over_kv() -> None:
    assert attainable_gain(35e9, 0.04, 5.6e9) == pytest.approx(0.25)
    held = 32 * LAYERS * DECODE.row_layer_bytes
    assert attainable_gain(35e9, SWEEP_S, held) == pytest.approx(0.26, abs=0.005)
    rows = DECODE.rows_of_a_sweep(SWEEP_S)
    gain = rendezvous_gain(DECODE, rows, SWEEP_S, ALONE)
    assert gain == pytest.approx(attainable_gain(35e9, SWEEP_S, held), rel=0.01)


def test_the_continuum_agrees_with_the_discrete_event_check() -> None:
    """Accelerator alone 858 tokens/s; +25% at 1.24 s; +20% at 0.90 s; +16% at 0.51 s."""
    assert pytest.approx(858, rel=0.01) == ALONE
    assert DECODE.rows_of_a_sweep(SWEEP_S) == pytest.approx(266, abs=1)
    assert rendezvous_gain(DECODE, 266, SWEEP_S, ALONE) == pytest.approx(0.25, abs=0.015)
    assert DECODE.rendezvous_token_s(266, SWEEP_S) == pytest.approx(1.24, rel=0.04)
    assert interposed_gain(DECODE, 100, ALONE) == pytest.approx(0.20, abs=0.01)
    assert DECODE.interposed_token_s(100) == pytest.approx(0.90, abs=0.005)
    assert interposed_gain(DECODE, 57, ALONE) == pytest.approx(0.16, abs=0.01)
    assert DECODE.interposed_token_s(57) == pytest.approx(0.51, abs=0.005)


def test_a_cohort_that_is_late_misses_a_whole_sweep() -> None:
    rows = DECODE.rows_of_a_sweep(SWEEP_S)
    late = DECODE.rendezvous_token_s(rows + 2, SWEEP_S)
    assert late == pytest.approx(2 * DECODE.rendezvous_token_s(rows, SWEEP_S))


def test_prefills_dilute_the_gain() -> None:
    assert request_gain(0.5, prefill_s=0.0, decode_s=1.0) == pytest.approx(0.5)
    assert request_gain(0.5, prefill_s=1.0, decode_s=1.0) == pytest.approx(2 / (1 + 1 / 1.5) - 1)
    assert request_gain(0.5, prefill_s=1.0, decode_s=0.0) == 0


def test_small_facts() -> None:
    assert wait_saved(8) == 0.875  # the paper: 75%
    assert switch_s(32, 30, 2.0) == 4.0
    assert residual_bytes(266, 4096, 2) == 266 * 8192


def test_bounds_of_gains_are_listed_not_scored() -> None:
    gains = [cell for cell in apex_cells() if cell.place == "figures 5, 7"]
    assert len(gains) == 5
    assert {cell.role for cell in gains} == {Role.LISTED}
