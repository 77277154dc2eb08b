"""NEO's inequalities, layer time and step decision, exactly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.bench.papers.cells import Role
from tandem.bench.papers.neo import CALIBRATION, neo_cells
from tandem.cost.neo.pipeline import (
    PipelinedLayer,
    SubBatchTimes,
    accelerator_only_layer_s,
)
from tandem.cost.neo.placing import Draft, drop_host_prefills, place_host_rows
from tandem.cost.neo.step_choice import (
    StepEstimate,
    pipelines_as_published,
    pipelines_for_tokens,
)

times = st.floats(0, 10, allow_nan=False)


@given(times, times, times, times, times)
def test_layer_time_is_the_papers(l0: float, l1: float, ga0: float, ca0: float, ca1: float) -> None:
    layer = PipelinedLayer(SubBatchTimes(l0, ga0, ca0), SubBatchTimes(l1, 0.0, ca1))
    assert layer.time_s == max(l0, ca1) + max(l1 + ga0, ca0)
    assert layer.hides_host == (l0 >= ca1 and l1 + ga0 >= ca0)
    if layer.hides_host:
        assert layer.time_s == pytest.approx(l0 + l1 + ga0)


def test_a_balanced_layer_leaves_nobody_idle() -> None:
    layer = PipelinedLayer(SubBatchTimes(3.0, 1.0, 3.0), SubBatchTimes(2.0, 0.0, 3.0))
    assert (layer.linear_gap_s, layer.attention_gap_s, layer.host_idle_s) == (0, 0, 0)
    assert layer.time_s == 6.0
    assert accelerator_only_layer_s(SubBatchTimes(3.0, 1.0)) == 4.0


def test_a_constant_launch_overhead_alone_decides_on_a_fast_accelerator() -> None:
    batch = SubBatchTimes(100e-6, 50e-6)
    second = SubBatchTimes(100e-6, 0.0, 90e-6)
    measured = PipelinedLayer(batch, second, launch_s=10e-6)
    constant = PipelinedLayer(batch, second, launch_s=0.8e-3)
    assert constant.time_s > 6 * accelerator_only_layer_s(batch)
    assert measured.time_s < 2 * accelerator_only_layer_s(batch)


# --- the decision ---------------------------------------------------------------------------------


def test_published_choice_counts_a_long_prefill_as_one_request() -> None:
    """100 decodes in 1 s, or 90 decodes and a prompt of 3,000 tokens in 0.95 s."""
    pipelined = StepEstimate(1.0, 100, 100)
    alone = StepEstimate(0.95, 91, 90, prefill_tokens=3000)
    assert pipelines_as_published(pipelined, alone)
    assert not pipelines_for_tokens(pipelined, alone, prefill_weight=0.1)


def test_published_choice_pipelines_on_a_tie_and_the_repaired_one_does_not() -> None:
    same = StepEstimate(1.0, 10, 10)
    assert pipelines_as_published(same, same)
    assert not pipelines_for_tokens(same, same, prefill_weight=1.0)


def test_the_bound_on_a_step_comes_first() -> None:
    pipelined, alone = StepEstimate(0.2, 100, 100), StepEstimate(0.1, 10, 10)
    assert pipelines_for_tokens(pipelined, alone, prefill_weight=1.0)
    assert not pipelines_for_tokens(pipelined, alone, prefill_weight=1.0, latency_bound_s=0.1)
    assert pipelines_for_tokens(pipelined, alone, prefill_weight=1.0, latency_bound_s=0.2)
    assert not pipelines_for_tokens(pipelined, alone, prefill_weight=1.0, latency_bound_s=0.05)


def test_an_empty_step_has_no_rate() -> None:
    empty = StepEstimate(0.0, 0, 0)
    assert empty.requests_per_s == 0
    assert empty.useful_tokens_per_s(1.0) == 0


# --- steps 4 and 5 --------------------------------------------------------------------------------


def linear(tokens: int) -> float:
    """A staircase: 1 s per started 4 tokens, nothing for none."""
    return float(-(-tokens // 4))


def test_host_rows_go_to_batch_1_then_to_batch_0_then_wait() -> None:
    draft = Draft(first_tokens=4, accelerator_attention_s=1.0)
    placing = place_host_rows(draft, [0.6, 0.6, 1.5, 9.0, 0.2], linear)
    # 0.6 + 0.6 exceed Tl_0 = 1; in batch 0 the second row opens a stair: Tl_0 = 2 from then on.
    assert placing.batches == (1, 0, None, None, 1)
    assert placing.draft.layer(linear).hides_host


@settings(max_examples=200)
@given(
    st.integers(0, 40),
    st.floats(0, 5),
    st.floats(0, 8),
    st.lists(st.floats(0.01, 3), max_size=20),
)
def test_placing_equals_the_pseudo_code(
    tokens: int, attention: float, prompts_host: float, rows: list[float]
) -> None:
    """Also where prompts that go to the host leave it no time: then no row is placed."""
    draft = Draft(tokens, 0, attention, second_host_s=prompts_host)
    placing = place_host_rows(draft, rows, linear)
    counts, host = [tokens, 0], [0.0, prompts_host]
    expected: list[int | None] = []
    for row in rows:  # appendix A, step 4
        for i in (1, 0):
            before = counts.copy(), host.copy()
            counts[i] += 1
            host[i] += row
            if host[1] <= linear(counts[0]) and host[0] <= linear(counts[1]) + attention:
                expected.append(i)
                break
            counts, host = before
        else:
            expected.append(None)
    assert placing.batches == tuple(expected)
    assert placing.draft.layer(linear).hides_host or not draft.layer(linear).hides_host


def test_host_prefills_are_dropped_while_the_host_stays_hidden() -> None:
    draft = Draft(first_tokens=4 + 8 + 8, second_tokens=2, second_host_s=2.5)
    assert draft.layer(linear).linear_gap_s == 2.5  # 5 s of linear stages hide 2.5 s
    assert drop_host_prefills(draft, [8, 8], linear) == 1
    assert drop_host_prefills(draft._replace(second_host_s=0.5), [8, 8], linear) == 2
    assert drop_host_prefills(draft._replace(second_host_s=4.5), [8, 8], linear) == 0


# --- figure 10a -----------------------------------------------------------------------------------


def test_gains_by_host_are_calibrated_on_one_instance_only() -> None:
    cells = [cell for cell in neo_cells() if cell.place == "figure 10a"]
    calibrated = [cell for cell in cells if cell.role is Role.CALIBRATED]
    assert [CALIBRATION in cell.cell for cell in calibrated] == [True]
    predicted = [cell.predicted for cell in cells]
    base = calibrated[0].published or 0
    assert predicted == pytest.approx([base, base, 2 * base, 4 * base])
    errors = {cell.cell: cell.error for cell in cells if cell.role is Role.SCORED}
    assert errors["A10G, g5.2xlarge: peak gain"] == pytest.approx(0.09, abs=0.01)
    assert errors["A10G, g5.8xlarge: peak gain"] == pytest.approx(-0.10, abs=0.01)
    assert errors["A10G, g5.16xlarge: peak gain"] == pytest.approx(-0.33, abs=0.01)


def test_contradictory_claims_are_listed_not_scored() -> None:
    claims = [cell for cell in neo_cells() if cell.place == "figure 9"]
    assert {cell.role for cell in claims} == {Role.LISTED}
    assert any("7.5x, 750%, 8x" in cell.note for cell in claims)
