"""The project's metadata, pins and indexes agree with each other and with the package."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import tandem

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]


# torch for CUDA requires one triton exactly, another for each of its own; no test has kvikio
UNPINNED = {"triton", "kvikio-cu13"}


def pins() -> dict[str, Version]:
    """Versions by canonical name, from constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    split = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in split}


def requirements() -> list[Requirement]:
    """Every direct dependency, those of building and development included."""
    groups = [
        PYPROJECT["build-system"]["requires"],
        PROJECT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
    ]
    return [Requirement(line) for group in groups for line in group]


def test_every_direct_dependency_is_pinned_within_its_range() -> None:
    pinned = pins()
    wrong: list[str] = []
    for requirement in requirements():
        if requirement.name in UNPINNED:
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        if version is None or version not in requirement.specifier:
            wrong.append(f"{requirement} (pinned: {version})")
    assert wrong == []


def test_pins_name_no_local_build() -> None:
    assert [name for name, version in pins().items() if version.local] == []


def test_changelog_knows_the_version_or_calls_it_unreleased() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert len(sections) == 1 or sections[1] == tandem.__version__


def test_every_decision_record_is_indexed() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text("utf-8")
    records = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert records
    assert [name for name in records if f"({name})" not in index] == []


def test_type_information_and_demo_model_travel_with_the_package() -> None:
    package = Path(tandem.__file__).parent
    model = package / "assets" / "demo-model"
    travelling = [package / "py.typed", model / "config.json", model / "model.safetensors"]
    assert [str(path) for path in travelling if not path.is_file()] == []
