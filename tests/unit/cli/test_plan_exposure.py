"""What `tandem plan` says of rates that are not as assumed."""

import json
import re

import pytest
from tests.unit.cli.conftest import Commands

from tandem.cli.plan_exposure import exposure_text
from tandem.planner.exposure import Exposure, MovedPlan

PLAN = ("plan", "opt-30b", "--accelerator", "a4000", "--requests", "100")
LINE = (
    r"^If rates are 15% off, this plan makes [\d.]+( instead of [\d.]+)? tokens/s at worst "
    r"\(-15%(, [a-z ]+)?\)$"
)


def moved(tokens_per_s: float, in_time: bool = True, error: float = -0.15) -> MovedPlan:
    return MovedPlan({"link": error}, tokens_per_s, in_time)


def test_every_answer_has_the_lines(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--policy", "gpu-only")
    assert (ran.status, ran.err) == (0, "")
    assert len(re.findall(LINE, ran.out, re.M)) == 1
    assert "\n  link -15% alone would cost" in ran.out


@pytest.mark.parametrize(
    ("flags", "compared", "exposed"),
    [
        ((), "of the job", "of the job"),
        (("--requests", "16"), "of the job", "of the job"),
        (("--rate", "0.01"), "with all places taken", "with all places taken"),
    ],
)
def test_what_rates_are_of_is_said(
    commands: Commands, flags: tuple[str, ...], compared: str, exposed: str
) -> None:
    """The text shows another throughput than the one that plans are compared by."""
    out = commands.run(*PLAN, *flags).out
    heading = re.search(r"^Rejected(?: \((.+), where this plan makes (.+) tokens/s\))?$", out, re.M)
    line = re.search(r"^If rates .+ makes (.+) tokens/s at worst \(-\d+%(?:, (.+?))?\)", out, re.M)
    assert heading is not None
    assert line is not None
    assert (heading[1], line[2]) == (compared, exposed)
    assert " instead of " in line[1]


def test_json_has_all_cases(commands: Commands) -> None:
    found = json.loads(commands.run(*PLAN, "--offline", "--json").out)["exposure"]
    assert set(found["worst"]["errors"]) == {"GPU rates", "host rates", "link"}
    assert len(found["cases"]) == 6
    losses = [case["loss"] for case in found["cases"]]
    assert found["cases"][losses.index(max(losses))]["errors"] == {found["decisive"]: -0.15}
    assert found["worst"]["tokens_per_s"] < found["planned_tokens_per_s"]


def test_on_the_host_alone_its_memory_and_its_arithmetic_move_apart(commands: Commands) -> None:
    alone = ("plan", "opt-1.3b", "--accelerator", "none", "--host", "desktop-ddr5")
    alone = (*alone, "--requests", "20")
    ran = commands.run(*alone)
    assert "  arithmetic -15% alone would cost most (-1" in ran.out
    found = json.loads(commands.run(*alone, "--json").out)["exposure"]
    assert [case["errors"] for case in found["cases"]] == [
        {"memory rate": -0.15}, {"memory rate": 0.15}, {"arithmetic": -0.15}, {"arithmetic": 0.15},
    ]  # fmt: skip
    # both together are the whole machine
    assert found["worst"]["loss"] == pytest.approx(0.15, abs=0.005)


def test_what_breaks_the_bound_is_named() -> None:
    found = Exposure(100.0, (moved(100.0), moved(90.0, in_time=False)), moved(80.0, in_time=False))
    first, second, third = exposure_text(found)
    assert first.endswith(" makes 80 tokens/s at worst (-20%)")
    assert second == "  link -15% alone would cost most (-10%)"
    assert third.endswith(" bound on time per token allows with link -15%, all of them at once")


def test_a_faster_link_may_cost_most() -> None:
    found = Exposure(100.0, (moved(95.0), moved(90.0, error=0.15)), moved(80.0))
    _, line = exposure_text(found)
    assert line.endswith("  link +15% alone would cost most (-10%)")


def test_what_is_compared_is_said_where_it_is_not_what_is_shown() -> None:
    found = Exposure(100.0, (moved(100.0), moved(100.0)), moved(80.0))
    (line,) = exposure_text(found, "of the job")
    assert line.endswith(" makes 80 instead of 100 tokens/s at worst (-20%, of the job)")


def test_a_plan_that_hangs_on_nothing_is_as_fast() -> None:
    found = Exposure(100.0, (moved(100.0), moved(100.0)), moved(99.9))
    assert list(exposure_text(found)) == ["If rates are 15% off, this plan is as fast"]
