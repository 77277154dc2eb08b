import json
import re
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Commands

from tandem.plan.offline import OfflinePlan
from tandem.plan.plan_file import read_plan

PLAN = (
    "plan", "opt-6.7b", "--accelerator", "t4", "--host", "server-genoa", "--requests", "64",
    "--generate", "32", "--offline",
)  # fmt: skip


def test_an_offline_plan_shows_memory_rates_limits_and_policies(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--compare-policies")
    assert (ran.status, ran.err) == (0, "")
    for part in (
        "opt-6.7b: 6.7 billion parameters, float16",
        "Best: ",
        "accelerator █",
        "of it pinned",
        "tokens/s, ",
        "a block  ",
        "all 64 requests",
        "Prompts: ",
        "Tokens after them: ",
        "limited by ",
        "  +1 GB GPU memory        ",
        "  +10 GB/s link           ",
        "  +8 cores                ",
        "Rejected",
        "% less: ",
        "zero-inference-stream ",
        "park-egger ",
        "Not weighed: attention's maps on the CPU without columns of MLPs, or some of them alone.\n"
        "Run it: --output FILE writes it; tandem batch opt-6.7b -i REQUESTS -o RESULTS --plan FILE",
    ):
        assert part in ran.out, part
    assert max(len(line) for line in ran.out.splitlines()) < 160


def test_the_plan_as_json_is_one_and_no_policy_beats_it(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--compare-policies", "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    plan = OfflinePlan.from_object(found["plan"])
    assert plan.num_layers == 32
    assert [entry["change"] for entry in found["sensitivities"]] == [
        "+1 GB GPU memory", "+10 GB/s link", "+8 cores",
    ]  # fmt: skip
    best = found["prediction"]["tokens_per_s"]
    assert all(entry["gain"] > -0.01 for entry in found["sensitivities"])
    rejected = [entry["tokens_per_s"] for entry in found["alternatives"]]
    assert 0 < len(rejected) <= 3
    assert rejected == sorted(rejected, reverse=True)
    assert rejected[0] <= best
    assert len({entry["description"] for entry in found["alternatives"]}) == len(rejected)
    rates = {entry["policy"]: entry.get("tokens_per_s", 0.0) for entry in found["policies"]}
    assert set(rates) >= {"flexgen", "kvpr", "lm-offload", "zero-inference-stream"}
    assert found["prediction"]["tokens_per_s"] == max(rates.values())
    assert found["prediction"]["tokens_per_s"] <= found["prediction"]["bound_tokens_per_s"]
    assert sum(found["prediction"][phase]["share"] for phase in ("prompts", "tokens")) == 1


def test_the_plan_goes_to_a_file_for_the_engine(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    ran = commands.run(*PLAN, "--output", str(path))
    assert (ran.status, ran.err) == (0, "")
    assert f"Run it: tandem batch opt-6.7b -i REQUESTS -o RESULTS --plan {path}" in ran.out
    planned = read_plan(path)
    assert isinstance(planned.plan, OfflinePlan)
    assert (planned.model_name, planned.plan.num_layers) == ("opt-6.7b", 32)
    assert planned.settings["max_num_seqs"] == planned.plan.block_rows
    missing = commands.run(*PLAN, "--output", str(tmp_path / "no" / "plan.json"))
    assert (missing.status, missing.out) == (2, "")
    assert "cannot write" in missing.err


def test_few_bits_are_allowed_not_demanded(commands: Commands) -> None:
    plain, few = (
        json.loads(commands.run(*PLAN, "--policy", "lm-offload", *more, "--json").out)
        for more in ((), ("--quantization", "int4"))
    )
    assert (plain["plan"]["quantization"], plain["plan"]["host_kv_dtype"]) == ("none", "float16")
    assert few["prediction"]["tokens_per_s"] >= plain["prediction"]["tokens_per_s"] * 0.99


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--rate", "1", "--tpot-bound", "1s"), "--rate and --tpot-bound cannot be used with"),
        (("--objective", "latency"), "--objective cannot be used with --offline"),
        (("--policy", "ride-along"), "no offline policy 'ride-along'"),
        (("--gpu-memory", "1GiB"), "no block of requests fits"),
        (("--order", "layers"), "unknown order 'layers'; use one of: auto, rows, columns"),
        (("--order", "columns", "--policy", "zero-inference"), "leave --order columns out"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(
    commands: Commands, more: tuple[str, ...], message: str
) -> None:
    ran = commands.run(*PLAN, *more)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_batches_go_by_rows_or_by_columns_as_asked(commands: Commands, order: str) -> None:
    ran = commands.run(*PLAN, "--order", order, "--policy", "flexgen", "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    plan = OfflinePlan.from_object(found["plan"])
    assert (plan.batches == 1) == (order == "rows")
    assert {found["prediction"]["order"], *(e["order"] for e in found["alternatives"])} == {order}


def test_an_order_of_batches_is_one_of_a_batch_job(commands: Commands) -> None:
    ran = commands.run("plan", "opt-6.7b", "--accelerator", "t4", "--order", "rows")
    assert (ran.status, ran.out) == (2, "")
    assert "use it with --offline, or leave it out" in ran.err


def test_offline_without_an_accelerator_is_refused(commands: Commands) -> None:
    ran = commands.run(
        "plan", "opt-6.7b", "--accelerator", "none", "--host", "server-genoa", "--offline"
    )
    assert (ran.status, ran.out) == (2, "")
    assert "without one, leave it out" in ran.err


def test_a_pass_is_drawn_queue_by_queue(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--policy", "kvpr", "--gantt")
    assert (ran.status, ran.err) == (0, "")
    chart = ran.out[ran.out.index("One pass over a block") :]
    found = re.findall(r"^  (\w+) +(\S{72})$", chart, re.MULTILINE)
    assert [name for name, _ in found] == ["accel", "h2d", "d2h", "weights", "cpu"] * 2
    layers = dict(found[5:])
    assert set(layers["cpu"]) == {"·"}  # all KV is streamed
    assert "c" in layers["h2d"]
    assert "c KV" in chart


def test_json_has_the_pass_and_the_wrong_numbers_if_asked(commands: Commands) -> None:
    plain = json.loads(commands.run(*PLAN, "--json").out)
    assert plain["robustness"] is None
    assert "decode_cycle" not in plain
    found = json.loads(commands.run(*PLAN, "--json", "--gantt", "--robustness").out)
    pass_s = found["prediction"]["tokens"]["pass"]["period_s"]
    assert found["decode_cycle"]["period_s"] == pytest.approx(pass_s, rel=0.02)
    cases = found["robustness"]["cases"]
    assert {number for case in cases for number in case["errors"]} == {
        "GPU rates",
        "host rates",
        "link",
    }
    assert len(cases) == 18
    for case in cases:
        assert len(case["alternatives_tokens_per_s"]) == len(found["alternatives"])
        assert case["best"]["tokens_per_s"] >= case["plan_tokens_per_s"] * (1 - 1e-9)
    planned = found["prediction"]["tokens_per_s"]
    slow, fast = (
        next(c for c in cases if c["errors"] == {"link": error}) for error in (-0.15, 0.15)
    )
    assert slow["plan_tokens_per_s"] <= planned <= fast["plan_tokens_per_s"]


def test_a_batch_job_is_drawn_as_a_picture(commands: Commands, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "plan.png"
    ran = commands.run(*PLAN, "--plot", str(file), "--robustness")
    assert (ran.status, ran.err) == (0, "")
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "If one number is wrong, or two" in ran.out


def test_a_bound_on_pinned_memory_has_a_unit(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--pinned-memory", "5")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("tandem: error: '5' has no unit (--pinned-memory)")
