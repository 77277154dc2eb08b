"""Triton's compiler takes the kernels; the interpreter that runs them in other tests takes more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")


def test_every_kernel_compiles(tmp_path: Path) -> None:
    lines = _compiled("--quick", tmp_path)
    assert len(lines) == 31


@pytest.mark.slow
@pytest.mark.timeout(600)  # seven compilations, on processors that other tests may use
def test_attention_compiles_for_every_generation(tmp_path: Path) -> None:
    lines = _compiled("--each", tmp_path)
    generations = [line.split()[0] for line in lines]
    assert generations == [f"sm_{n}" for n in (75, 80, 86, 89, 90, 100, 120)]
    assert [line.split()[1] for line in lines] == ["decode"] + ["prefill"] * 6


def _compiled(option: str, cache: Path) -> list[str]:
    """A line for each kernel that was."""
    script = Path(__file__).parents[2] / "scripts" / "check_triton.py"
    compiled = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    compiled["TRITON_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-W", "ignore", str(script), option]
    run = subprocess.run(command, env=compiled, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return [line for line in run.stdout.splitlines() if "registers" in line]
