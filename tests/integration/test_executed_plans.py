"""The chosen plan against each policy's, executed on the paced emulator under truths held out.

In virtual time, with a host that takes the times of its profile: what differs between prediction
and execution are the accelerator's truth, which only probes have seen, and what the scheduler does.
"""

import pytest
from tests.support.paced_cells import virtual_cell
from tests.unit.planner.questions import ask

from tandem.bench.online.cell import Load, make_cell
from tandem.bench.online.plans import plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.plan.online import OnlinePlan
from tandem.planner.policies import POLICIES
from tandem.runtime.paced.perturbed_rates import Perturbation

_NOISE = 0.03  # windows are a few tokens of each request: the next is as far off
CASES = [
    ("small", "llama-3.1-8b", Load(1, 900), 1),
    ("rtx4090-scaled", "llama-2-7b", Load(1, 600), 2),
    ("t4-scaled", "llama-2-7b", Load(1, 400), 3),
]


Case = tuple[str, str, Load, int]


class Executed:
    """A cell's plans, and what becomes of each: it is executed once, when a test first asks."""

    def __init__(self, case: Case) -> None:
        hardware, model, load, seed = case
        truth = Perturbation(seed, terms=0.3, tile_rows=64, jitter=0.02)
        self.cell = virtual_cell(make_cell(hardware, model, 4, load, truth))
        self.planned = {
            each.policy: each for each in self.cell.planned(*POLICIES) if each.plan is not None
        }
        self._made: dict[OnlinePlan, float] = {}

    def tokens_per_s(self, policy: str) -> float:
        """Of its plan, which others may have, too."""
        plan = self.planned[policy].plan
        assert plan is not None
        if plan not in self._made:
            self._made[plan] = self.cell.executed(self.planned[policy]).tokens_per_s
        return self._made[plan]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def executed(request: pytest.FixtureRequest) -> Executed:
    return Executed(request.param)


@pytest.mark.slow
def test_policies_differ_and_the_simulator_knows_what_becomes_of_the_best(
    executed: Executed,
) -> None:
    plans = {each.plan for each in executed.planned.values()}
    assert len(plans) >= 3  # or nothing is tested
    # knows the profile only, and takes every step as the engine does
    simulated = steady_tokens_per_s(executed.planned["auto"], executed.cell.cell.load, 1.0)
    assert simulated == pytest.approx(executed.tokens_per_s("auto"), rel=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_auto_is_at_least_as_good_as_each_policy_predicted_and_executed(
    policy: str, executed: Executed
) -> None:
    if policy not in executed.planned:
        pytest.skip("no plan of it fits")
    auto, option = executed.planned["auto"].option, executed.planned[policy].option
    assert auto is not None
    assert option is not None
    assert auto.tokens_per_s >= 0.99 * option.tokens_per_s
    made = executed.tokens_per_s(policy)
    assert executed.tokens_per_s("auto") >= (1 - _NOISE) * made
    assert option.prediction.rates.tokens_per_s == pytest.approx(made, rel=0.12)


def test_auto_has_passes_where_they_are_best_and_a_scheduler_makes_as_much_of_them() -> None:
    """All layers of OPT-6.7B, whose host holds so few requests that those that advance by a layer
    per sweep would not use its cores.
    """
    load = Load(500, 300)
    lengths = {"prompt": "450-550", "generate": "270-330", "requests": 50_000}
    question = ask("opt-6.7b", "t4", "g4dn.4xlarge", **lengths)
    made: dict[str, float] = {}
    for each in plan_policies(question, ("auto", "neo", "rendezvous", "ride-along", "symmetric")):
        assert each.option is not None
        made[each.policy] = steady_tokens_per_s(each, load, 1.0)
        if each.policy == "auto":
            assert each.option.candidate.strategy == "asymmetric"
        predicted = each.option.prediction.rates.tokens_per_s
        assert predicted == pytest.approx(made[each.policy], rel=0.06), each.policy
    assert made["auto"] > 1.15 * max(made[name] for name in made if name != "auto")
