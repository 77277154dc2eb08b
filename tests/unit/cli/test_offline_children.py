"""Offline plans whose parts other processes find are those that one process finds."""

import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from typing import TypeVar

import pytest
from tests.unit.planner.questions import ask, short

from tandem.cli.children import Children
from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.answer import offline_answer
from tandem.planner.question import Question
from tandem.spec.units import GIB

T = TypeVar("T")


class Counted:
    """Children, and how many were asked."""

    def __init__(self, children: Children) -> None:
        self._children, self.here = children, os.getpid()
        self.asked = self.elsewhere = 0

    def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        """As `Children.begin`."""
        wait = self._children.begin(lambda: (os.getpid(), compute()))

        def result() -> T:
            process, found = wait()
            self.asked += 1
            self.elsewhere += process != self.here
            return found

        return result


def small_job(device_gib: float) -> Question:
    model = short(plannable_spec("opt-6.7b"), 8)
    question = ask(model, "a10g", "server-genoa", prompt="512", generate="65", requests=64)
    return replace(question, device_bytes=round(device_gib * GIB), host_bytes=8 * GIB)


def answers_are_those_of_one_process() -> None:
    policies = set[bool]()
    for gib in (1.5, 3.0, 12.0):
        question = small_job(gib)
        with Children(cores=2) as children:
            counted = Counted(children)
            found = offline_answer(question, aside=counted)
        assert counted.elsewhere == counted.asked
        assert counted.asked >= len(found.sensitivities) == 3
        policies.add(counted.asked > 3)
        assert found == offline_answer(question)
    assert True in policies  # what was found under a policy that allows less was of use somewhere


def refusals_end_what_was_begun() -> None:
    with Children(cores=2) as children, pytest.raises(Exception, match="fit"):
        offline_answer(small_job(0.01), aside=children)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    "body",
    [answers_are_those_of_one_process, refusals_end_what_was_begun],
    ids=lambda body: body.__name__,
)
def test_offline_answers(body: Callable[[], None]) -> None:
    """In a process of its own: beside threads there are no children."""
    process = get_context("spawn").Process(target=body)
    process.start()
    process.join(300)
    assert process.exitcode == 0
