"""`tandem plan --gantt` and `--plot`."""

import json
import re
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Commands
from tests.unit.planner.questions import ask

from tandem.cli.plan_gantt import MARKS, operation_name
from tandem.cli.plan_plot import OPERATIONS, Tier, plan_figure
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.candidate import Candidate
from tandem.planner.cycle import decode_cycle

PLAN = (
    "plan", "opt-30b", "--accelerator", "a4000", "--requests", "100", "--policy", "ride-along",
    "--cpu-memory", "62GiB",
)  # fmt: skip
ROWS = ["accel", "h2d", "d2h", "weights", "cpu"]


def test_a_cycle_is_drawn_queue_by_queue(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--gantt")
    assert (ran.status, ran.err) == (0, "")
    chart = ran.out[ran.out.index("One decode cycle") :]
    found = re.findall(r"^  (\w+) +(\S{72})$", chart, re.MULTILINE)
    assert [name for name, _ in found] == ROWS * 2
    whole, layers = dict(found[:5]), dict(found[5:])
    # the link limits this plan: it never rests, the accelerator does
    assert set(whole["weights"]) == {"█"}
    assert "█" not in whole["accel"]
    assert set(layers["weights"]) <= set("lL")
    assert re.fullmatch(r"p+·+o+p+·+o+·+", layers["accel"])
    assert re.fullmatch(r"·*a+·+a+·+", layers["cpu"])
    assert "p before attention" in chart
    assert "One decode cycle" not in commands.run(*PLAN).out


@pytest.mark.parametrize(
    ("policy", "on_cpu"), [("n-gpu-layers", r"m|o"), ("n-cpu-moe", r"M")], ids=["layers", "MLPs"]
)
def test_layers_on_the_cpu_are_drawn(commands: Commands, policy: str, on_cpu: str) -> None:
    few = ("mixtral-8x7b", "--accelerator", "rtx4090", "--host", "server-genoa", "--requests", "4")
    ran = commands.run("plan", *few, "--policy", policy, "--gantt")
    assert (ran.status, ran.err) == (0, "")
    chart = ran.out[ran.out.index("One decode cycle") :]
    found = re.findall(r"^  (\w+) +(\S{72})$", chart, re.MULTILINE)
    whole, layers = dict(found[:5]), dict(found[5:])
    assert re.search(on_cpu, layers["cpu"])
    assert "x" in layers["d2h"] + layers["h2d"] + chart.splitlines()[-1]
    assert set(whole["weights"]) == {"·"}


def test_experts_on_both_sides_are_drawn(commands: Commands) -> None:
    few = ("qwen3-30b-a3b", "--accelerator", "rtx4090", "--host", "server-genoa", "--requests", "4")
    ran = commands.run("plan", *few, "--gantt")
    assert (ran.status, ran.err) == (0, "")
    assert re.search(
        r"\d+ experts of each layer resident, the others (streamed|on the CPU)", ran.out
    )
    chart = ran.out[ran.out.index("One decode cycle") :]
    found = re.findall(r"^  (\w+) +(\S{72})$", chart, re.MULTILINE)
    layers = dict(found[5:])
    assert "M" in layers["cpu"]
    assert "E experts" in chart
    assert "R routing" in chart


def test_json_has_the_operations_only_if_asked(commands: Commands) -> None:
    found = json.loads(commands.run(*PLAN, "--json", "--gantt").out)
    cycle = found["decode_cycle"]
    assert cycle["period_s"] == pytest.approx(
        found["prediction"]["decode_sweep"]["period_s"], rel=1e-3
    )
    assert {entry["queue"] for entry in cycle["operations"]} == set(ROWS)
    assert "decode_cycle" not in json.loads(commands.run(*PLAN, "--json").out)


def test_a_picture_is_written(commands: Commands, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "plan.png"
    ran = commands.run(*PLAN, "--plot", str(file))
    assert (ran.status, ran.err) == (0, "")
    head = file.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(head[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1210, 880)


def test_a_picture_has_a_row_for_each_queue_that_is_busy_and_says_how_much(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    question = ask(requests=8)
    cycle = decode_cycle(question, Candidate("gpu-only", 0, 4, 0))
    assert not cycle.on(Queue.WEIGHTS)
    figure = plan_figure("a plan", [Tier("host", {"KV": 1})], cycle, "one cycle")
    _, whole, layers = figure.axes
    for axes in (whole, layers):
        shown = [label.get_text() for label in axes.get_yticklabels()]
        queues = [text.partition(",")[0] for text in shown]
        busy = [queue for queue in Queue if cycle.busy(queue, 0.0, cycle.period_s)]
        assert sorted(queues) == sorted(queue.value for queue in busy)
        assert Queue.WEIGHTS.value not in queues
        assert all(re.fullmatch(r"\w+, \d+%", text) for text in shown)
    shares = {label.get_text() for label in whole.get_yticklabels()}
    share = cycle.busy(Queue.ACCEL, 0.0, cycle.period_s)
    assert f"{Queue.ACCEL.value}, {share:.0%}" in shares


def test_operations_are_told_apart_by_mark_and_by_colour() -> None:
    assert set(MARKS) == set(OPERATIONS)
    assert len(set(MARKS.values())) == len(MARKS)
    assert len(set(OPERATIONS.values())) == len(OPERATIONS)


@pytest.mark.parametrize(
    "part", sorted(set(Part) - {Part.NONE, Part.CPU_COLUMNS})
)  # no stage, no copy
def test_whatever_a_program_may_hold_has_a_name(part: Part) -> None:
    op = ProgramOp(OpKind.STAGE, Queue.ACCEL, part, (0,), 0, 1, (), (), ())
    assert operation_name(op) in MARKS


@pytest.mark.parametrize(
    ("name", "message"), [("none/plan.png", "is not a folder"), ("plan.jpg", "writes a PNG")]
)
def test_a_picture_that_cannot_be_is_one_line(
    commands: Commands, tmp_path: Path, name: str, message: str
) -> None:
    pytest.importorskip("matplotlib")
    ran = commands.run(*PLAN, "--plot", str(tmp_path / name))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_a_picture_is_refused(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = commands.run(*PLAN, "--plot", str(tmp_path / "plan.png"))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "--plot needs matplotlib; pip install 'tandem-llm[plot]'" in ran.err
