"""The page on profiles says of every number what it is for, and who reads it."""

import re
from dataclasses import fields

import pytest
from tests.docs.pages import ROOT

from tandem.profiling.measurements import (
    AcceleratorMeasurements,
    DiskMeasurements,
    HostMeasurements,
    LinkDirection,
)
from tandem.profiling.profile import Profile

_HEADING = "### What each number is for\n"


def rows() -> list[str]:
    """The first column of the table."""
    text = (ROOT / "docs/profile.md").read_text()
    _, _, section = text.partition(_HEADING)
    section, _, _ = section.partition("\n## ")
    return [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]


NAMED = {name for row in rows() for name in re.findall(r"[\w.]*?(\w+)`", row)}


@pytest.mark.parametrize(
    "kind",
    [Profile, HostMeasurements, AcceleratorMeasurements, LinkDirection, DiskMeasurements],
)
def test_every_number_is_in_the_table(kind: type) -> None:
    grouped = {"host", "accelerator"}  # whose own numbers are there
    assert {field.name for field in fields(kind)} - grouped <= NAMED
