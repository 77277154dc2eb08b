"""Plans whose parts other processes find are those that one process finds."""

import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from typing import TypeVar

import pytest
from tests.unit.planner.questions import ask, short

from tandem.cli.children import Children
from tandem.cli.plan_printing import PlanPrinting
from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import Answer, answer
from tandem.planner.aside import InTurn
from tandem.planner.question import Question
from tandem.planner.rates import Busy
from tandem.spec.units import GIB
from tandem.spec.workload import drawn_workload, parse_lengths

T = TypeVar("T")


class Told:
    """Children, and in which processes what was asked for was found."""

    def __init__(self, children: Children) -> None:
        self._children, self.processes = children, set[int]()

    def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        """As `Children.begin`."""
        wait = self._children.begin(lambda: (os.getpid(), compute()))

        def result() -> T:
            process, found = wait()
            self.processes.add(process)
            return found

        return result


def small_job(device_gib: float) -> Question:
    model = short(plannable_spec("opt-6.7b"), 8)
    question = ask(model, "t4", "g4dn.4xlarge", prompt="100", generate="65", requests=64)
    sizes = {"step_sizes": (256, 512, 2048), "max_num_batched_tokens": 2048}
    return replace(question, device_bytes=round(device_gib * GIB), host_bytes=8 * GIB, **sizes)


def all_busy(found: Answer) -> list[Busy]:
    """Which predictions do not compare."""
    others = (entry.option for entry in found.sensitivities)
    return [each.prediction.busy for each in (found.chosen, *found.alternatives, *others)]


def answers_are_those_of_one_process() -> None:
    for gib in (2.5, 6.0):
        with Children(cores=2) as children:
            told = Told(children)
            found = answer(small_job(gib), aside=told)
        assert len(told.processes) > len(found.sensitivities) == 3
        assert os.getpid() not in told.processes
        alone = answer(small_job(gib))
        assert found == alone
        assert all_busy(found) == all_busy(alone)


def as_it_was_told(whole: Answer) -> Answer:
    """Without what is beside the plan."""
    beside = {"alternatives": (), "sensitivities": (), "policies": ()}
    return replace(whole, **beside, ceiling=None, exposure=None, robustness=None)


def test_a_plan_is_told_before_what_is_beside_it_is_looked_for() -> None:
    told: list[Answer] = []
    begun: list[int] = []

    class Noting(InTurn):
        def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
            begun.append(len(told))
            return compute

    found = answer(small_job(6.0), "gpu-only", aside=Noting(), tell=told.append)
    assert told == [as_it_was_told(found)]
    assert found.sensitivities
    # larger machines are begun after it: their children are copies of this process
    assert begun.count(1) >= len(found.sensitivities)


def test_a_better_plan_found_beside_one_is_told_and_printed_as_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[Answer] = []
    found = answer(small_job(3.2), compare=True, tell=told.append)
    assert len(told) == 2
    assert told[0].chosen.tokens_per_s < told[1].chosen.tokens_per_s
    assert told[1] == as_it_was_told(found)
    lengths = parse_lengths("100", "prompt"), parse_lengths("65", "generate")
    printing = PlanPrinting("a-model", drawn_workload(*lengths, 64), ("assumed",))
    for plan in told:
        printing.plan(plan)
    plans = capsys.readouterr().out
    assert plans.count("a-model: ") == 1
    first, _, second = plans.partition("It takes its place:\n")
    for text, plan in ((first, told[0]), (second, told[1])):
        assert f"{plan.job_tokens_per_s:.0f} tokens/s of the job" in text
        assert text.count("\nBest: ") == text.count("\nLimited by: ") == 1
    printing.beside(found, (), None)
    beside = capsys.readouterr().out
    assert beside.startswith("No plan in ")
    assert "Best: " not in beside
    for part in ("\nWith more", "\nIf rates are 15% off", "\nRejected", "\nRun it on that machine"):
        assert part in beside


def test_online_answers() -> None:
    """In a process of its own: beside threads there are no children."""
    process = get_context("spawn").Process(target=answers_are_those_of_one_process)
    process.start()
    process.join(300)
    assert process.exitcode == 0
