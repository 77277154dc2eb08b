"""Plans of models that do not fit, held against the scheduler in virtual time: what is predicted
comes true, and the planner's choice is no slower than keeping all KV on the accelerator.
"""

from dataclasses import dataclass
from functools import cache

import pytest
from tests.support.planned_option import option_of

from tandem.cli.plan_hardware import plan_hardware
from tandem.cli.planning import read_question
from tandem.cli.planning_options import GoalOptions, MemoryOptions, StepOptions
from tandem.planner.answer import choose, online_plan
from tandem.planner.job_time import job_in_waves
from tandem.planner.policies import strategy_alone
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import with_steps_that_fit
from tandem.simulator.build import Planned
from tandem.simulator.outcome import Outcome
from tandem.simulator.simulate import simulate
from tandem.spec.workload import drawn_workload, parse_lengths

_AS_PREDICTED = 0.15
_NO_SLOWER = 1.02


@dataclass(frozen=True)
class Cell:
    """A model on a machine, and requests that are all there at once."""

    model: str
    accelerator: str
    host: str | None
    prompt: int
    generate: int
    requests: int


CELLS = {
    "opt-30b": Cell("opt-30b", "a4000", None, 512, 16, 40),
    "opt-13b": Cell("opt-13b", "t4", None, 512, 16, 100),
    "qwen3-32b": Cell("qwen3-32b", "rtx4090", None, 1000, 32, 60),
    "llama-70b": Cell("llama-3.1-70b", "rtx4090", "server-genoa", 512, 32, 200),
    "llama-70b, long": Cell("llama-3.1-70b", "rtx4090", "server-genoa", 512, 128, 200),
    "llama-70b, many": Cell("llama-3.1-70b", "a100-40", None, 512, 32, 600),
    "llama-8b": Cell("llama-3.1-8b", "t4", None, 512, 128, 200),
}


@dataclass(frozen=True)
class Run:
    """What was planned, and what became of it."""

    planned: Planned
    predicted_s: float
    outcome: Outcome


@cache
def run(name: str, strategy: str) -> Run:
    """Plan, and serve the requests by the plan."""
    cell = CELLS[name]
    workload = drawn_workload(
        parse_lengths(str(cell.prompt), "prompt"),
        parse_lengths(str(cell.generate), "generate"),
        cell.requests,
    )
    hardware = plan_hardware(cell.accelerator, cell.host, None)
    question = read_question(
        cell.model, hardware, workload, MemoryOptions(), StepOptions(), GoalOptions()
    )
    policy = strategy_alone(strategy)
    search = Search(with_steps_that_fit(question, policy))
    option = choose(search, policy)
    planned = Planned(search.question, option, online_plan(search, option))
    predicted_s = job_in_waves(
        search.question, search.predictor, option.candidate, planned.plan
    ).job_s
    return Run(planned, predicted_s, simulate(planned, workload))


@pytest.mark.parametrize("strategy", ["auto", "gpu-only"])
@pytest.mark.parametrize("name", CELLS)
def test_a_job_takes_as_long_as_predicted(name: str, strategy: str) -> None:
    found = run(name, strategy)
    predicted = pytest.approx(found.predicted_s, rel=_AS_PREDICTED)
    assert found.outcome.duration_s == predicted, option_of(found.planned).candidate


@pytest.mark.parametrize("name", CELLS)
def test_the_choice_is_no_slower_than_all_kv_on_the_accelerator(name: str) -> None:
    chosen, alone = run(name, "auto"), run(name, "gpu-only")
    assert chosen.outcome.duration_s <= _NO_SLOWER * alone.outcome.duration_s


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("opt-13b", "auto"), ("qwen3-32b", "ride-along")],  # where auto has all KV on the accelerator
)
def test_where_prompts_leave_as_many_are_read_as_there_is_room_for(
    name: str, strategy: str
) -> None:
    """One request's plan of two prompts read as much in more than twice as many sweeps."""
    found = run(name, strategy)
    assert option_of(found.planned).candidate.prompts_here > 2
    prompts = CELLS[name].requests
    assert found.outcome.steps < prompts * 1.5
