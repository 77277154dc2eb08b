"""Plans are the same with the compiled loops and without; where they are missing it is said."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.planner import native
from tandem.planner.answer import choose, online_plan
from tandem.planner.in_step import live_through
from tandem.planner.job_time import JobInWaves
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.rates import Prediction
from tandem.planner.search.search import Search

EIGHT_B, MIXTURE = (short(plannable_spec(name), 8) for name in ("llama-3.1-8b", "qwen3-30b-a3b"))
SMALL = {"requests": 60, "generate": "16-200"}


def planned(question: Question) -> tuple[OnlinePlan, Prediction, JobInWaves]:
    search = Search(question)
    option = choose(search, POLICIES["auto"])
    return online_plan(search, option), option.prediction, live_through(search, option)


@pytest.mark.skipif(not native.available(), reason="no compiled loops here")
@pytest.mark.parametrize(
    "question",
    [
        ask(EIGHT_B, "t4", "g4dn.4xlarge", device_bytes=3 << 30, **SMALL),
        ask(EIGHT_B, "rtx4090", "desktop-ddr5", device_bytes=5 << 30, prompt="4000", requests=40),
        ask(MIXTURE, "a10g", "g5.4xlarge", device_bytes=4 << 30, **SMALL),
    ],
    ids=["streamed", "resident", "mixture"],
)
def test_plans_are_the_same_to_the_bit(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = planned(question)
    monkeypatch.setattr(native, "loops", None)
    assert not native.available()
    assert planned(question) == compiled


def test_a_set_up_with_a_compiler_has_built_them() -> None:
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler here")
    assert native.available(), native.unavailable_message()


PROGRAM = """
import sys
sys.modules["tandem.planner._loops"] = None  # makes its import fail
from tandem.planner import native
from tandem.planner.fluid import virtual_time
from tandem.planner.waves import Home, Wave
from tandem.spec.workload import RequestShape
wave = Wave((Home(9, 1, True), Home(0, 0, False)), 1, 10, 100)
print(wave.job_s([RequestShape(10, 31)], lambda device, host, prompts: 1.0))
print(native.unavailable_message())
"""


def test_without_them_those_of_python_run() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(Path(native.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    took_s, message = result.stdout.splitlines()
    assert float(took_s) == pytest.approx(31, abs=2)
    assert "several times as long" in message
    assert "install Tandem from a wheel" in message


def test_they_need_neither_torch_nor_numpy() -> None:
    program = "import sys; before = set(sys.modules); import tandem.planner._loops\n"
    program += "print(sorted(name for name in set(sys.modules) - before if '.' not in name))"
    if not native.available():
        pytest.skip("no compiled loops here")
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(native.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not {"torch", "numpy"} & set(ast.literal_eval(result.stdout))
