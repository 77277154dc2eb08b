"""`tandem plan --robustness`."""

import json
import re

from tests.unit.cli.conftest import Commands

PLAN = ("plan", "opt-30b", "--accelerator", "a4000", "--requests", "100", "--robustness")


def test_a_table_and_the_number_that_matters(commands: Commands) -> None:
    ran = commands.run(*PLAN)
    assert (ran.status, ran.err) == (0, "")
    rows = re.findall(r"^  (GPU rates|host bandwidth|link) +([-+]20%)( +\S+)+$", ran.out, re.M)
    assert len(rows) == 6
    assert "Worst regret: " in ran.out
    assert "Its own speed depends most on: link" in ran.out
    assert max(len(line) for line in ran.out.splitlines()) < 160


def test_json_has_the_cases(commands: Commands) -> None:
    found = json.loads(commands.run(*PLAN, "--json").out)
    robust = found["robustness"]
    assert robust["decisive"] == "link"
    assert robust["worst_regret"] == max(case["regret"] for case in robust["cases"])
    assert len(robust["cases"][0]["alternatives_tokens_per_s"]) == len(found["alternatives"])
    assert json.loads(commands.run(*PLAN[:-1], "--json").out)["robustness"] is None
