"""The page has every policy, in the order of the code, with what it comes from."""

import re
from pathlib import Path

from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.policies import POLICIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plan.md"


def rows(heading: str) -> list[tuple[str, str]]:
    """Policy and source of the table below the line that begins so."""
    below = PAGE.read_text("utf-8").partition(heading)[2].lstrip().splitlines()
    table = below[: next(i for i, line in enumerate(below) if not line.startswith("|"))]
    found = (re.fullmatch(r"\| `([a-z-]+)` \|.*\| (.*?) ?\|", line) for line in table)
    return [(match[1], match[2]) for match in found if match]


def test_online_policies_are_all_there() -> None:
    found = rows("## Policies\n")
    assert [name for name, _ in found] == list(POLICIES)


def test_policies_of_batch_jobs_are_all_there_with_their_sources() -> None:
    found = rows("[what each allows](batch-plans.md#few-bits-and-policies):\n")
    assert [name for name, _ in found] == list(OFFLINE_POLICIES)
    for name, source in found:
        # the first word says which paper, or which system
        told = OFFLINE_POLICIES[name].source
        assert name == "auto" or _first_word(source) == _first_word(told), name


def _first_word(text: str) -> str:
    return re.split(r"[ ,']", text)[0]
