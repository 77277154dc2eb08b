"""Rules of ARCHITECTURE.md that import contracts cannot express, read off the syntax trees.

Each rule yields one line per violation; each is also shown a snippet that it must reject.
"""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "tandem"
SOURCES = sorted(PACKAGE.rglob("*.py"))

TORCH_FREE_ROOMS = (
    "spec",
    "plan",
    "cost",
    "planner",
    "scheduler",
    "memory",
    "profiling",
    "simulator",
)
CLOCK_FREE_ROOMS = TORCH_FREE_ROOMS
TORCH_CUDA_FOLDER = "devices/cuda/"

Rule = Callable[[str, ast.Module], Iterator[str]]


def imported_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything imported anywhere in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def dotted_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every attribute chain such as `torch.cuda.Stream`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)


def is_within(name: str, module: str) -> bool:
    """Whether a dotted name is the module or lies in it."""
    return name == module or name.startswith(module + ".")


def room_of(path: str) -> str:
    """The first folder of a path relative to the package; a file at the top is its own room."""
    return path.split("/")[0].removesuffix(".py")


def no_torch_in_pure_rooms(path: str, tree: ast.Module) -> Iterator[str]:
    """Facts, decisions, cost, accounting and scheduling do not know tensors."""
    if room_of(path) in TORCH_FREE_ROOMS:
        for line, name in imported_names(tree):
            if is_within(name, "torch"):
                yield f"{path}:{line} imports {name}"


def no_clock_in_pure_rooms(path: str, tree: ast.Module) -> Iterator[str]:
    """Time is injected, so that virtual time can run the same code."""
    if room_of(path) in CLOCK_FREE_ROOMS:
        for line, name in imported_names(tree):
            if is_within(name, "time") or is_within(name, "datetime"):
                yield f"{path}:{line} imports {name}"


def torch_cuda_in_one_folder(path: str, tree: ast.Module) -> Iterator[str]:
    """Only one folder speaks to the CUDA runtime; all others go through the device's interface."""
    if not path.startswith(TORCH_CUDA_FOLDER):
        for line, name in [*imported_names(tree), *dotted_names(tree)]:
            if is_within(name, "torch.cuda"):
                yield f"{path}:{line} uses {name}"


def no_pickle(path: str, tree: ast.Module) -> Iterator[str]:
    """Nothing read from disk or a socket may execute code. A pipe from a copy of this process,
    as `multiprocessing`'s are, is neither, nor are bytes that never leave a process's memory.
    """
    if path in ("cli/children.py", "runtime/paced/journal.py"):
        return
    unsafe = ("pickle", "cloudpickle", "dill", "marshal", "shelve", "torch.load", "torch.save")
    for line, name in [*imported_names(tree), *dotted_names(tree)]:
        if any(is_within(name, module) for module in unsafe):
            yield f"{path}:{line} uses {name}"


def no_remote_code(path: str, tree: ast.Module) -> Iterator[str]:
    """A model directory is data; `trust_remote_code=True` would execute it."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.keyword) and node.arg == "trust_remote_code"):
            continue
        if not (isinstance(node.value, ast.Constant) and node.value.value is False):
            yield f"{path}:{node.value.lineno} passes trust_remote_code"


def no_sleep(path: str, tree: ast.Module) -> Iterator[str]:
    """Sleeping is not synchronisation: wait for a signal, a condition or a file descriptor."""
    for line, name in [*imported_names(tree), *dotted_names(tree)]:
        if name in ("time.sleep", "asyncio.sleep"):
            yield f"{path}:{line} uses {name}"


def no_grab_bags(path: str, tree: ast.Module) -> Iterator[str]:
    """A file is named after its one concept; behaviour is shared by collaborators, not mixins."""
    if Path(path).stem in ("utils", "util", "helpers", "misc", "common"):
        yield f"{path} has no subject"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Mixin"):
            yield f"{path}:{node.lineno} class {node.name} is a mixin"


def no_module_state(path: str, tree: ast.Module) -> Iterator[str]:
    """State belongs to objects that someone owns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"{path}:{node.lineno} global {', '.join(node.names)}"


RULES_AND_BAD_SNIPPETS: list[tuple[Rule, str, str]] = [
    (no_torch_in_pure_rooms, "plan/x.py", "def f():\n    from torch import Tensor"),
    (no_clock_in_pure_rooms, "scheduler/x.py", "from time import monotonic"),
    (torch_cuda_in_one_folder, "engine/x.py", "import torch\nstream = torch.cuda.Stream()"),
    (torch_cuda_in_one_folder, "engine/x.py", "from torch import cuda"),
    (no_pickle, "engine/x.py", "import pickle"),
    (no_pickle, "engine/x.py", "import torch\ntorch.load('weights.bin')"),
    (no_remote_code, "models/x.py", "load(path, trust_remote_code=flag)"),
    (no_sleep, "engine/x.py", "import time\ntime.sleep(0.1)"),
    (no_sleep, "engine/x.py", "from time import sleep"),
    (no_grab_bags, "engine/utils.py", ""),
    (no_grab_bags, "engine/x.py", "class LoopMixin: ..."),
    (no_module_state, "engine/x.py", "def f():\n    global engine\n    engine = 1"),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in RULES_AND_BAD_SNIPPETS))


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every source of the package, parsed, by its path relative to the package."""
    return {
        source.relative_to(PACKAGE).as_posix(): ast.parse(source.read_text("utf-8"))
        for source in SOURCES
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Rule, trees: dict[str, ast.Module]) -> None:
    violations = [violation for path, tree in trees.items() for violation in rule(path, tree)]
    assert not violations, f"{rule.__doc__}\n" + "\n".join(violations)


@pytest.mark.parametrize(("rule", "path", "snippet"), RULES_AND_BAD_SNIPPETS)
def test_the_rule_rejects_a_bad_snippet(rule: Rule, path: str, snippet: str) -> None:
    assert list(rule(path, ast.parse(snippet)))


def test_every_folder_with_code_is_a_package() -> None:
    """Import contracts do not see namespace packages."""
    folders = {source.parent for source in SOURCES}
    assert [str(f) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def test_importing_tandem_and_its_pure_rooms_does_not_import_torch() -> None:
    rooms = [room for room in TORCH_FREE_ROOMS if (PACKAGE / room / "__init__.py").is_file()]
    modules = sorted(
        ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts)
        for room in rooms
        for source in (PACKAGE / room).rglob("*.py")
    )
    lines = [f"import {module.removesuffix('.__init__')}" for module in ["tandem", *modules]]
    program = "\n".join([*lines, "import sys", "sys.exit('torch' in sys.modules)"])
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr or "torch was imported"
