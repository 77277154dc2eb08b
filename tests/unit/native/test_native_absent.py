"""Without the compiled extension everything imports, and what is missing is said."""

import subprocess
import sys
from pathlib import Path

from tandem.kernels import native

PROGRAM = """
import sys
sys.modules["tandem.kernels._native"] = None  # makes its import fail
from tandem.kernels import native
from tandem.spec.errors import ConfigError
assert not native.available()
assert native.supported_isas() == []
try:
    native.choose_isa()
except ConfigError as error:
    print(error.message)
"""


def test_absence_is_told_with_a_remedy() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(Path(native.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "slow reference kernels" in result.stdout
    assert "install Tandem from a wheel" in result.stdout
    assert len(result.stdout.splitlines()) == 1
