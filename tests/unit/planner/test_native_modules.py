"""Two compiled modules in one process: whichever comes first, errors of both keep their types."""

import subprocess
import sys

import pytest

from tandem.planner import native

ERRORS = """
import tandem.{0}, tandem.{1}
from tandem.kernels._native import spin_round_trips
from tandem.planner._loops import Wave, job

home = (-1, 1, 0, 1.0, 0.0, 0.0)
wave = Wave(home, home, 1, 64, 1.0, 1.0)
for refused in (lambda: spin_round_trips(0), lambda: job(wave, [(1, 1)], max)):
    try:
        refused()
    except ValueError as error:
        print(error)
"""


@pytest.mark.skipif(not native.available(), reason="nothing was compiled")
@pytest.mark.parametrize(
    "first", ["kernels._native", "planner._loops"], ids=["kernels first", "loops first"]
)
def test_errors_of_both_are_value_errors(first: str) -> None:
    both = ["kernels._native", "planner._loops"]
    code = ERRORS.format(first, *(name for name in both if name != first))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "at least one round" in ran.stdout
    assert "blocks must be" in ran.stdout
