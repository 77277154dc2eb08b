"""The papers' pages map equations to functions and tests that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs" / "papers").glob("*.md") if path.stem != "README")
CODE = re.compile(r"`([^`]+)`")


def mapping(page: Path) -> tuple[Path, Path, list[tuple[str, str]]]:
    """The folder and test file of the first table's head, and its rows' last two columns."""
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("|")]
    head = CODE.findall(rows[0])
    cells = [row.strip("|").split("|") for row in rows[2:]]
    width = rows[0].count("|") - 1
    table = [(row[1], row[2]) for row in cells if len(row) == width]
    return ROOT / head[0], ROOT / head[1], table


def missing(page: Path) -> Iterator[str]:
    folder, tests, rows = mapping(page)
    sources = {path.name: path.read_text("utf-8") for path in folder.glob("*.py")}
    shared = (folder.parent / "from_model.py").read_text("utf-8")
    code = "\n".join([*sources.values(), shared])
    tested = tests.read_text("utf-8") + (tests.parent / "test_from_model.py").read_text("utf-8")
    for functions, names in rows:
        for name in CODE.findall(functions):
            if name.endswith(".py"):
                if not (folder / name).exists():
                    yield name
            elif re.split(r"[.(=]", name)[0] not in code:
                yield name
        for name in CODE.findall(names):
            parts = [part for part in re.split(r"\.\.\.", name.strip("_")) if part]
            if not name.endswith(".py") and not all(part.strip("_") in tested for part in parts):
                yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_mapping_names_what_exists(page: Path) -> None:
    assert len(mapping(page)[2]) >= 5
    assert list(missing(page)) == []


def test_every_paper_has_a_page() -> None:
    assert [page.stem for page in PAGES] == ["apex", "kvpr", "lm-offload", "neo", "park-egger"]


def test_faults_of_neos_code_have_tests_that_exist() -> None:
    page = (ROOT / "docs" / "papers" / "neo.md").read_text("utf-8")
    section = page.partition("## Faults of the published code")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+)`(?: in `([^`]+)`)?", section)
    assert len(named) >= 12
    for name, file in named:
        source = ROOT / (file or "tests/regression/test_neo_faults.py")
        assert f"\ndef {name}(" in source.read_text("utf-8"), name
