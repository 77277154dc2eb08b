"""`tandem plan --robustness`."""

import json
import re

import pytest
from tests.unit.cli.conftest import Commands

PLAN = (
    "plan",
    "opt-30b",
    "--accelerator",
    "a4000",
    "--requests",
    "100",
    "--policy",
    "ride-along",
    "--robustness",
)


FRAGILE = ("plan", "llama-3.1-8b", "--accelerator", "t4", "--dtype", "bfloat16", *PLAN[4:])


def test_a_table_and_the_number_that_matters(commands: Commands) -> None:
    ran = commands.run(*PLAN)
    assert (ran.status, ran.err) == (0, "")
    rows = re.findall(r"^  (GPU rates|host rates|link) +([-+]15%)( {2,}\S+)+$", ran.out, re.M)
    assert len(rows) == 6
    one = r"(?:GPU rates|host rates|link) [-+]15%"
    assert len(re.findall(rf"^  {one}, {one}( +\S+)+$", ran.out, re.M)) == 12
    assert "\nRobust: in every case within 3% of the best plan\n" in ran.out
    assert "Its own speed depends most on: link" in ran.out
    assert max(len(line) for line in ran.out.splitlines()) < 160


def test_where_another_plan_is_better_is_said(commands: Commands) -> None:
    ran = commands.run(*FRAGILE)
    assert (ran.status, ran.err) == (0, "")
    one = r"(?:GPU rates|host rates|link) [-+]15%"
    fragile = rf"^Fragile: .* at {one}(, {one})? \(\d\.\d%\), and in \d+ more$"
    assert re.search(fragile, ran.out, re.M)
    assert "Worst regret: " in ran.out


def test_json_has_the_cases(commands: Commands) -> None:
    found = json.loads(commands.run(*PLAN, "--json").out)
    robust = found["robustness"]
    assert robust["decisive"] == "link"
    assert len(robust["cases"]) == 18
    assert robust["worst_regret"] == max(case["regret"] for case in robust["cases"])
    assert len(robust["cases"][0]["alternatives_tokens_per_s"]) == len(found["alternatives"])
    assert json.loads(commands.run(*PLAN[:-1], "--json").out)["robustness"] is None


ALONE = ("plan", "opt-1.3b", "--accelerator", "none", "--host", "desktop-ddr5")


def test_on_the_host_alone_two_rates_may_be_wrong(commands: Commands) -> None:
    ran = commands.run(*ALONE, "--requests", "20", "--robustness")
    assert (ran.status, ran.err) == (0, "")
    for part in (
        "  memory rate -15%, arithmetic +15%", "\nRobust: in every case within 3% of the best plan",
        "\nIts own speed depends most on: arithmetic",
    ):  # fmt: skip
        assert part in ran.out, part
    assert "accelerator" not in ran.out.partition("Run it")[0]


def test_larger_hosts_alone_are_planned_for(commands: Commands) -> None:
    ran = commands.run(*ALONE, "--requests", "20", "--json")
    gains = {each["change"]: each["gain"] for each in json.loads(ran.out)["sensitivities"]}
    assert list(gains) == ["+1 GB memory", "+10 GB/s memory rate", "+8 cores"]
    assert gains["+1 GB memory"] == pytest.approx(0.0, abs=1e-6)
    assert 0.02 < gains["+10 GB/s memory rate"] < 0.15
    assert 0.3 < gains["+8 cores"] < 0.7
    told = commands.run(*ALONE, "--requests", "20").out
    assert "\nRejected: no other kind of plan; the host alone differs in how many requests" in told


@pytest.mark.parametrize("flags", [["--gantt"], ["--plot", "plan.png"]])
def test_on_the_host_alone_there_is_nothing_to_show(commands: Commands, flags: list[str]) -> None:
    alone = ("plan", "opt-1.3b", "--accelerator", "none", "--host", "desktop-ddr5")
    ran = commands.run(*alone, *flags)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert flags[0] in ran.err
    assert "on the host alone" in ran.err


def test_a_host_that_is_too_small_is_told_how_much_it_lacks(commands: Commands) -> None:
    alone = ("plan", "llama-3.1-70b", "--accelerator", "none", "--host", "desktop-ddr5")
    ran = commands.run(*alone, "--disk", "none")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "accelerator" not in ran.err
    assert re.search(r"may give 61\.0 GiB; any of these .*--cpu-memory \d+MiB", ran.err)
