"""Installs the wheel of dist/ into an empty environment without a compiler, and uses it there.

Run by `make wheel-check`, with the Python that the wheel is for. Needs the standard library only.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheel-check"
MODEL = "tandem/assets/demo-model/model.safetensors"
MANYLINUX = re.compile(r"manylinux_2_(\d+)_")
MOST_GLIBC = 28  # of glibc's minor versions: what torch's wheels need
COMPILERS = ("c++", "g++", "gcc", "cc", "clang", "clang++", "cmake", "ninja")


def main() -> None:
    wheel = find_wheel()
    check_archive(wheel)
    environment = WORK / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
    # The interpreter's own folder is all that is on the path.
    variables = {
        name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "CXX"}
    }
    variables["PATH"] = str(environment / "bin")
    check_no_compiler(environment / "bin")
    python = str(environment / "bin" / "python")
    install(python, variables, pinned_torch())
    install(python, variables, str(wheel))
    tandem = str(environment / "bin" / "tandem")
    facts = json.loads(run([tandem, "collect-env", "--json"], variables))
    require(facts["CPU kernels"].startswith("compiled, "), f"CPU kernels: {facts['CPU kernels']}")
    require(facts["plans"] == "compiled loops", f"plans: {facts['plans']}")
    place = run([python, "-c", "import tandem; print(tandem.__file__)"], variables).strip()
    require(Path(place).is_relative_to(environment), f"tandem was imported from {place}")
    command = [tandem, "generate", "--prompt", "A context manager is", "--max-tokens", "16"]
    text = run(command, variables)
    require(bool(text.strip()), "tandem generate printed nothing")
    print(f"{wheel.name}: {facts['CPU kernels']}; {text.strip()!r}")


def find_wheel() -> Path:
    """The wheel for this interpreter."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    wheels = sorted((ROOT / "dist").glob(f"tandem_llm-*-{tag}-{tag}-*.whl"))
    require(len(wheels) == 1, f"dist/ must hold one wheel for {tag}, not {len(wheels)}: make wheel")
    return wheels[0]


def check_archive(wheel: Path) -> None:
    """Its tag is old enough, and the demo model is in it."""
    glibc = [int(minor) for minor in MANYLINUX.findall(wheel.name)]
    require(bool(glibc) and min(glibc) <= MOST_GLIBC, f"{wheel.name} needs too new a C library")
    names = zipfile.ZipFile(wheel).namelist()
    require(MODEL in names, f"{wheel.name} lacks {MODEL}")
    for module in ("tandem/kernels/_native.", "tandem/planner/_loops."):
        found = [name for name in names if name.startswith(module) and name.endswith(".so")]
        require(bool(found), f"{wheel.name} lacks {module}so")


def check_no_compiler(folder: Path) -> None:
    found = [name for name in COMPILERS if (folder / name).exists()]
    require(not found, f"{folder} holds {', '.join(found)}")


def pinned_torch() -> str:
    """First and alone: what depends on it must not choose another build."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def install(python: str, variables: dict[str, str], what: str) -> None:
    """From wheels alone: nothing may be compiled."""
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    run([*pip, "--only-binary=:all:", "-c", str(ROOT / "constraints.txt"), what], variables)


def run(command: list[str], variables: dict[str, str]) -> str:
    result = subprocess.run(
        command, env=variables, cwd=WORK, capture_output=True, text=True, check=False
    )
    require(result.returncode == 0, f"{command}: exit {result.returncode}\n{result.stderr[-2000:]}")
    return result.stdout


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"wheel-check: {message}")


if __name__ == "__main__":
    main()
