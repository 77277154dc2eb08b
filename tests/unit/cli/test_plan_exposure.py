"""What `tandem plan` says of rates that are not as assumed."""

import json
import re

from tests.unit.cli.conftest import Commands

from tandem.cli.plan_exposure import exposure_text
from tandem.planner.exposure import Exposure, MovedPlan

PLAN = ("plan", "opt-30b", "--accelerator", "a4000", "--requests", "100")
LINE = r"^If rates are 15% off, this plan makes [\d.]+ tokens/s at worst \(-15%\); .+ \(-\d+%\)$"


def moved(tokens_per_s: float, in_time: bool = True) -> MovedPlan:
    return MovedPlan({"link": -0.15}, tokens_per_s, in_time)


def test_every_answer_has_the_line(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--policy", "gpu-only")
    assert (ran.status, ran.err) == (0, "")
    assert len(re.findall(LINE, ran.out, re.M)) == 1
    assert "; link alone would cost" in ran.out


def test_json_has_all_cases(commands: Commands) -> None:
    found = json.loads(commands.run(*PLAN, "--offline", "--json").out)["exposure"]
    assert set(found["worst"]["errors"]) == {"GPU rates", "host rates", "link"}
    assert len(found["cases"]) == 6
    losses = [case["loss"] for case in found["cases"]]
    assert found["cases"][losses.index(max(losses))]["errors"] == {found["decisive"]: -0.15}
    assert found["worst"]["tokens_per_s"] < found["planned_tokens_per_s"]


def test_there_is_none_on_the_host_alone(commands: Commands) -> None:
    alone = ("plan", "opt-1.3b", "--accelerator", "none", "--host", "desktop-ddr5")
    assert "If rates" not in commands.run(*alone).out
    assert json.loads(commands.run(*alone, "--json").out)["exposure"] is None


def test_what_breaks_the_bound_is_named() -> None:
    found = Exposure(100.0, (moved(100.0), moved(90.0, in_time=False)), moved(80.0, in_time=False))
    first, second = exposure_text(found)
    assert first.endswith(" makes 80 tokens/s at worst (-20%); link alone would cost most (-10%)")
    assert second.endswith(" bound on time per token allows with link -15%, all of them at once")


def test_a_plan_that_hangs_on_nothing_is_as_fast() -> None:
    found = Exposure(100.0, (moved(100.0), moved(100.0)), moved(99.9))
    assert list(exposure_text(found)) == ["If rates are 15% off, this plan is as fast"]
