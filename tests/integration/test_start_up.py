"""What stands between a command and its first token, counted in imports and not in seconds.

Most of a start is torch's own import. Beside it, a module that only another command needs, or a
library that pulls in hundreds, would be felt at every start.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.docs.pages import environment

HEAVY = (
    "transformers pandas scipy sympy matplotlib fastapi starlette uvicorn httpx rich sqlite3 "
    "torch._dynamo torch._inductor tandem.api tandem.bench tandem.demo tandem.jobs tandem.server"
)
MAX_MODULES = 820
"""Beside torch's; it was 760 when the bound was set."""

PROGRAM = f"""
import sys
from tandem.cli.main import main
prompt = ["--prompt", "Once upon a time", "--max-tokens", "1", "--temperature", "0"]
status = main(["generate", "demo", "--accelerator", "none", "--load-format", "auto", *prompt])
heavy = [name for name in {HEAVY!r}.split() if name in sys.modules]
count = sum(name.partition(".")[0] != "torch" for name in sys.modules)
print(f"imported {{heavy}}, {{count}} modules", file=sys.stderr)
sys.exit(status or bool(heavy) or count > {MAX_MODULES})
"""

UNPLANNED = "numpy highspy multiprocessing tandem.profiling.measurements tandem.cost.sweep_time"
PLANNER = f"""
import sys
import tandem.cli.main, tandem.cli.plan, tandem.cli.children, tandem.cli.plan_text
import tandem.planner.answer
found = [name for name in {UNPLANNED!r}.split() if name in sys.modules]
sys.exit(f"imported {{found}}" if found else 0)
"""


@pytest.mark.parametrize("name", [name for name in HEAVY.split() if "." in name])
def test_what_must_not_be_imported_exists(name: str) -> None:
    """Or the bound on it would be one on nothing."""
    assert find_spec(name) is not None


def test_a_first_token_needs_no_heavy_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_planning_needs_nothing_of_those_who_solve_programmes_or_measure() -> None:
    """Of a plan's start that was 40% of the time."""
    done = subprocess.run(
        [sys.executable, "-c", PLANNER],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
