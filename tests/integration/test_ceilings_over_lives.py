"""Nothing that is executed over a request's life exceeds its ceiling."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled

from tandem.bench.online.bed import question_of
from tandem.bench.online.cell import Load, make_cell
from tandem.bench.online.plans import Planned, plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.whole_tiles import tiled_ceiling
from tandem.runtime.paced.perturbed_rates import Perturbation

_WINDOW_S = 1.0
_MOMENT = 1.01
"""A window ends when those that run are older or younger than they were when it began."""


def planned_of(card: str, model: str, layers: int, load: Load, policy: str) -> Planned:
    """On the machine as described."""
    cell = make_cell(card, model, layers, load, Perturbation())
    question = question_of(cell, cell.hardware, load.workload())
    return plan_policies(question, (policy,))[0]


@pytest.mark.parametrize("card", ["small", "t4-scaled"])
def test_more_run_than_plans_count_and_ceilings_of_executions_know_it(card: str) -> None:
    """Plans leave room for times at which those that run are old; memory is full for all that."""
    load = Load(1, 1000)
    planned = planned_of(card, "llama-2-7b", 8, load, "gpu-only")
    question, policy = planned.question, POLICIES["gpu-only"]
    footprint = Footprint(question)
    made = steady_tokens_per_s(planned, load, _WINDOW_S)
    assert made > 1.01 * Ceilings(question, footprint, policy).ceiling().tokens_per_s
    assert made <= _MOMENT * tiled_ceiling(question, footprint, policy)


def test_one_batch_that_waits_for_the_cpu_shares_the_memory_with_loads() -> None:
    """Loads of MLPs are spared in no sweep, and nothing is attended while the accelerator computes:
    the best of the programmes that searches begin with is far above what they find.
    """
    planned = planned_of("t4-scaled", "llama-3.1-8b", 8, Load(1, 1000), "auto")
    question, policy = planned.question, POLICIES["auto"]
    footprint, predicted = Footprint(question), planned.predicted_per_s
    assert predicted is not None
    programme = Ceilings(question, footprint, policy).ceiling().tokens_per_s
    assert predicted <= tiled_ceiling(question, footprint, policy) < 0.95 * programme


@settings(max_examples=scaled(5), deadline=None)
@given(
    st.sampled_from(["small", "t4-scaled", "rtx4090-scaled"]),
    st.sampled_from(["llama-3.1-8b", "llama-2-7b"]),
    st.sampled_from([4, 6, 8]),
    st.sampled_from([Load(1, 150), Load(1, 300), Load(1, 50), Load(64, 32)]),
    st.sampled_from(["auto", "gpu-only", "neo"]),
)
def test_no_run_exceeds_its_ceiling(
    card: str, model: str, layers: int, load: Load, policy: str
) -> None:
    planned = planned_of(card, model, layers, load, policy)
    if planned.plan is None:
        return
    question = planned.question
    most = tiled_ceiling(question, Footprint(question), POLICIES["auto"])
    assert steady_tokens_per_s(planned, load, _WINDOW_S) <= _MOMENT * most
