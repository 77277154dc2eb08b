"""As many requests run at once as plans say, the real scheduler deciding who does."""

from dataclasses import replace

import pytest

from tandem.bench.online.bed import question_of
from tandem.bench.online.cell import Load, OnlineCell, make_cell
from tandem.bench.online.plans import Planned, plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.runtime.paced.perturbed_rates import Perturbation

_WINDOW_S = 1.0


def planned_of(card: str, model: str, load: Load, policy: str) -> tuple[OnlineCell, Planned]:
    """On the machine as described."""
    cell = make_cell(card, model, 8, load, Perturbation())
    question = question_of(cell, cell.hardware, load.workload())
    return cell, plan_policies(question, (policy,))[0]


@pytest.mark.parametrize(
    ("model", "load", "policy", "beyond"),
    [
        ("llama-3.1-8b", Load(1, 1000), "gpu-only", 0.05),
        # more run than are counted, of whom memory holds as many as it does in the mean
        ("llama-2-7b", Load(1, 1000), "auto", 0.08),
        ("llama-2-7b", Load(512, 512), "auto", 0.05),
    ],
    ids=str,
)
def test_predictions_count_as_many_requests_as_run(
    model: str, load: Load, policy: str, beyond: float
) -> None:
    cell, planned = planned_of("small", model, load, policy)
    assert planned.option is not None
    predicted = planned.option.prediction.rates.tokens_per_s
    simulated = steady_tokens_per_s(planned, cell.load, _WINDOW_S)
    assert (1 - beyond) * simulated <= predicted <= 1.05 * simulated


def test_far_more_requests_run_than_have_room_for_their_ends() -> None:
    cell, planned = planned_of("small", "llama-3.1-8b", Load(1, 1000), "gpu-only")
    plan = planned.plan
    assert plan is not None
    at_their_ends = plan.device_blocks // 16
    assert plan.max_num_seqs > 1.5 * at_their_ends
    here = steady_tokens_per_s(planned, cell.load, _WINDOW_S)
    fewer = replace(planned, plan=replace(plan, max_num_seqs=at_their_ends))
    assert here > 1.3 * steady_tokens_per_s(fewer, cell.load, _WINDOW_S)
