import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Commands

from tandem.cli.plan import plan
from tandem.cli.simulate import simulate

SIMULATE = ("simulate", "llama-3.1-8b", "--accelerator", "a10g", "--host", "g5.4xlarge")
FEW = ("--requests", "12", "--generate", "20")


def test_one_run_shows_latencies_rates_and_what_is_busy(commands: Commands) -> None:
    ran = commands.run(*SIMULATE, *FEW)
    assert (ran.status, ran.err) == (0, "")
    for part in (
        "llama-3.1-8b on NVIDIA A10G, AWS g5.4xlarge, simulated",
        "12 requests: 512 tokens in, 20 out in the mean",
        "plan: gpu-only: weights resident, 12 requests on the accelerator",
        "time to first token",
        "240 tokens in ",
        "the planner predicts",
        "accelerator             █",
        "0 preemptions; ",
    ):
        assert part in ran.out, part
    # but for what the plan rests on, in the words of `tandem plan`
    lines = [line for line in ran.out.splitlines() if not line.startswith("AWS g5.4xlarge: ")]
    assert max(map(len, lines)) < 120


@pytest.mark.parametrize("written", [False, True])
def test_what_the_numbers_rest_on_is_said_as_in_a_plan(
    commands: Commands, tmp_path: Path, written: bool
) -> None:
    args = (*FEW, "--json")
    basis = json.loads(commands.run("plan", *SIMULATE[1:], *args).out)["basis"]
    assert len(basis) == 2
    assert basis[1].startswith("AWS g5.4xlarge: ")
    by_plan = ()
    if written:
        by_plan = ("--plan", str(tmp_path / "plan.json"))
        commands.run("plan", *SIMULATE[1:], *FEW, "--output", by_plan[1])
    assert json.loads(commands.run(*SIMULATE, *args, *by_plan).out)["basis"] == basis
    assert "\n".join(basis) in commands.run(*SIMULATE, *FEW, *by_plan).out


def test_the_type_that_is_chosen_is_said_in_json_too(commands: Commands) -> None:
    card = (*SIMULATE[:2], "--accelerator", "t4", *FEW)
    said = json.loads(commands.run(*card, "--json").out)["basis"]
    assert any(line.startswith("Planned in float16: ") for line in said)
    assert all(line in commands.run(*card).out for line in said)


def test_names_that_can_be_asked_for_are_named(commands: Commands) -> None:
    one = ("--requests", "12", "--generate", "1", "--strategy", "symmetric")
    ran = commands.run(*SIMULATE, *one)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "--strategy symmetric serves requests in cohorts, which are of no use to" in ran.err
    assert "use another strategy" in ran.err
    small = commands.run(*SIMULATE, *FEW, "--strategy", "gpu-only", "--gpu-memory", "1GiB")
    assert "the model does not fit under --strategy gpu-only: " in small.err
    batch = commands.run(*SIMULATE, *FEW, "--policy", "kvpr")
    assert (batch.status, batch.out, batch.err.count("\n")) == (2, "", 1)
    assert "which tandem plan --offline plans; use one of: auto, gpu-only" in batch.err
    assert "add --offline" not in batch.err


@pytest.mark.parametrize(
    ("sweep", "values"),
    [
        (("--rates", "0.5,8"), [0.5, 8.0]),
        (("--generate", "10,40"), [10, 40]),
        (("--host-cores", "4,16"), [4, 16]),
    ],
)
def test_a_list_of_values_is_a_row_each_and_a_curve(
    commands: Commands, sweep: tuple[str, str], values: list[float]
) -> None:
    few = (*FEW, *sweep)
    ran = commands.run(*SIMULATE, *few)
    assert (ran.status, ran.err) == (0, "")
    rows = [line.split()[0] for line in ran.out.splitlines() if line.startswith("       ")]
    assert [row for row in rows if row == f"{values[0]:g}"] == [f"{values[0]:g}"] * 2
    found = json.loads(commands.run(*SIMULATE, *few, "--json").out)
    assert found["varies"] == sweep[0]
    assert [run["value"] for run in found["runs"]] == values
    first, second = found["runs"]
    if sweep[0] == "--rates":
        assert first["plan"] == second["plan"]
        highest = json.loads(commands.run(*SIMULATE, *FEW, "--rate", "8", "--json").out)
        assert first["plan"] == highest["runs"][0]["plan"]
        assert "plan for 8 requests/s: " in ran.out
        assert first["latency"]["p50_s"] < second["latency"]["p50_s"]
        assert first["tokens_per_s"] < second["tokens_per_s"]
    elif sweep[0] == "--generate":
        assert (first["output_tokens"], second["output_tokens"]) == (120, 480)


def test_bounds_are_told_of_and_kept_where_they_can_be(commands: Commands) -> None:
    bounds = ("--ttft-bound", "10s", "--tpot-bound", "200ms")
    ran = commands.run(*SIMULATE, *FEW, *bounds)
    assert (ran.status, ran.err) == (0, "")
    assert "100.0% of the first tokens came within the bound" in ran.out
    swept = commands.run(*SIMULATE, *FEW, "--rates", "1,2", "--ttft-bound", "1ms")
    assert swept.out.count("  in time") == 1
    assert swept.out.count("  0.0%") == 2
    (run,) = json.loads(commands.run(*SIMULATE, *FEW, *bounds, "--json").out)["runs"]
    assert run["ttft_kept"] == 1.0
    wrong = commands.run(*SIMULATE, *FEW, "--ttft-bound", "soon")
    assert wrong.status == 2
    assert "'soon' is not a duration" in wrong.err


def test_a_trace_of_requests_and_one_for_perfetto(commands: Commands, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,100,20\n60,300,4\n", "utf-8")
    out = tmp_path / "timeline.json"
    ran = commands.run(*SIMULATE, "--trace", str(trace), "--timeline", str(out), "--json")
    assert (ran.status, ran.err) == (0, "")
    (run,) = json.loads(ran.out)["runs"]
    assert (run["requests"], run["output_tokens"]) == (2, 24)
    assert run["duration_s"] > 60
    assert run["mean_running"] < 0.1
    events = json.loads(out.read_text("utf-8"))
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"accel", "cpu", "h2d"} <= names
    assert sum(event["ph"] == "X" for event in events) > 20


def test_distributions_are_told_from_the_least_to_the_most(commands: Commands) -> None:
    ran = commands.run(*SIMULATE, "--requests", "40", "--generate", "4-40", "--rate", "2", "--json")
    found = json.loads(ran.out)
    shares, (run,) = found["quantiles"], found["runs"]
    assert shares == sorted({*(percent / 100 for percent in range(0, 100, 5)), 0.99, 1.0})
    for name in ("ttft", "tpot", "latency"):
        latency = run[name]
        quantiles_s = latency["quantiles_s"]
        assert len(quantiles_s) == len(shares)
        assert quantiles_s == sorted(quantiles_s)
        assert quantiles_s[0] < latency["mean_s"] < quantiles_s[-1]
        at = dict(zip(shares, quantiles_s, strict=True))
        assert [at[n / 100] for n in (50, 90, 99)] == [latency[f"p{n}_s"] for n in (50, 90, 99)]


def test_a_trace_without_times_comes_at_each_rate(commands: Commands, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"prompt_tokens": 100, "generated_tokens": 4}\n' * 20, "utf-8")
    ran = commands.run(*SIMULATE, "--trace", str(trace), "--rates", "0.1,1", "--json")
    assert (ran.status, ran.err) == (0, "")
    slow, fast = json.loads(ran.out)["runs"]
    assert slow["duration_s"] > 5 * fast["duration_s"] > 50
    timed = '{"prompt_tokens": 100, "generated_tokens": 4, "timestamp": 0}\n'
    trace.write_text(timed, "utf-8")
    refused = commands.run(*SIMULATE, "--trace", str(trace), "--rates", "0.1,1")
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "has arrival times of its own" in refused.err


OF_PLANS_ALONE = {
    "offline", "order", "pinned_memory", "compare_policies", "robust", "output", "gantt",
    "plot",
}  # fmt: skip
"""Options that ask no other question: of batch jobs, and what is shown."""
OTHERWISE = {"context", "generate", "as_json"}
"""Lists are taken as well, and no question is asked by it."""


def test_whatever_a_plan_may_be_asked_may_be_simulated() -> None:
    asked, simulated = (inspect.signature(command).parameters for command in (plan, simulate))
    assert asked.keys() - simulated.keys() == OF_PLANS_ALONE
    for name in asked.keys() - OF_PLANS_ALONE - OTHERWISE:
        assert simulated[name].annotation == asked[name].annotation, name
        assert name == "requests" or simulated[name].default == asked[name].default, name


SMALLER = [
    ("--quantization", "int4:64"),
    ("--kv-cache-dtype", "int8"),
    ("--dtype", "float32", "--disk", "2GB/s", "--cpu-memory", "20GiB", "--gpu-memory", "10GiB"),
    ("--objective", "latency", "--policy", "n-gpu-layers", "--gpu-memory", "8GiB"),
    ("--block-size", "32", "--max-num-batched-tokens", "512", "--tpot-bound", "1s"),
]


@pytest.mark.parametrize("options", SMALLER, ids=lambda options: options[0])
def test_the_same_question_has_the_same_plan_and_its_file_is_served_alike(
    commands: Commands, tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "plan.json"
    asked = commands.run("plan", *SIMULATE[1:], *FEW, *options, "--output", str(file))
    assert (asked.status, asked.err) == (0, "")
    ran = commands.run(*SIMULATE, *FEW, *options, "--json")
    assert (ran.status, ran.err) == (0, "")
    (run,) = json.loads(ran.out)["runs"]
    assert run["plan"] == json.loads(file.read_text("utf-8"))["plan"]
    kept = [flag for name in ("--disk", "--tpot-bound") for flag in _given(options, name)]
    served = commands.run(*SIMULATE, *FEW, *kept, "--plan", str(file), "--json")
    assert (served.status, served.err) == (0, "")
    (again,) = json.loads(served.out)["runs"]
    if "--objective" not in options:  # one after the other, or all waiting from the start
        assert {**again, "planned_tokens_per_s": run["planned_tokens_per_s"]} == run
    assert again["plan"] == run["plan"]
    assert again["planned_tokens_per_s"] is None


def _given(options: tuple[str, ...], name: str) -> tuple[str, ...]:
    if name not in options:
        return ()
    place = options.index(name)
    return options[place : place + 2]


def test_one_request_at_a_time_waits_for_nobody(commands: Commands) -> None:
    ran = commands.run(*SIMULATE, *FEW, "--objective", "latency", "--json")
    planned = commands.run("plan", *SIMULATE[1:], *FEW, "--objective", "latency", "--json")
    (run,), predicted = json.loads(ran.out)["runs"], json.loads(planned.out)["prediction"]
    assert run["ttft"]["p99_s"] == pytest.approx(predicted["ttft_s"], rel=0.01)
    assert run["tpot"]["p99_s"] == pytest.approx(predicted["tpot_s"], rel=0.01)
    assert run["mean_running"] == pytest.approx(1.0)


def test_a_file_says_what_is_served_in_a_line(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    commands.run("plan", *SIMULATE[1:], *FEW, "--policy", "simple", "--output", str(file))
    ran = commands.run(*SIMULATE, *FEW, "--plan", str(file))
    assert (ran.status, ran.err) == (0, "")
    assert "plan: ride-along, 32 layers resident; up to 12 requests at once, all KV on the" in (
        ran.out
    )
    assert "the planner predicts" not in ran.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--gpu-memory", "8GiB"], "--gpu-memory has no meaning beside --plan"),
        (["--kv-cache-dtype", "int8"], "--kv-cache-dtype has no meaning beside --plan"),
        (["--policy", "auto"], "--policy has no meaning beside --plan"),
        (["--host", "g5.8xlarge"], "it is for NVIDIA A10G, AWS g5.4xlarge, not for NVIDIA A10G"),
        (["--max-num-batched-tokens", "512"], "--max-num-batched-tokens has no meaning beside"),
        (["--prompt", "600"], "room for requests of 532 tokens, and the longest has 620"),
    ],
)
def test_what_contradicts_a_plan_is_refused(
    commands: Commands, tmp_path: Path, args: list[str], message: str
) -> None:
    file = tmp_path / "plan.json"
    commands.run("plan", *SIMULATE[1:], *FEW, "--output", str(file))
    ran = commands.run(*SIMULATE, *FEW, "--plan", str(file), *args)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err


def test_a_plan_serves_one_request_at_a_time_if_asked_to(
    commands: Commands, tmp_path: Path
) -> None:
    file, goal = tmp_path / "plan.json", ("--objective", "latency")
    commands.run("plan", *SIMULATE[1:], *FEW, *goal, "--output", str(file))
    ran = commands.run(*SIMULATE, *FEW, *goal, "--plan", str(file), "--json")
    (run,) = json.loads(ran.out)["runs"]
    assert run["mean_running"] == pytest.approx(1.0)


ALONE = ("simulate", "opt-1.3b", "--accelerator", "none", "--host", "desktop-ddr5")


def test_the_host_alone_is_simulated(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    ran = commands.run(*ALONE, *FEW)
    assert (ran.status, ran.err) == (0, "")
    assert "plan: the host alone: weights resident, 12 requests\n" in ran.out
    commands.run("plan", *ALONE[1:], *FEW, "--output", str(file))
    by_plan = commands.run(*ALONE, *FEW, "--plan", str(file))
    assert "plan: the host alone, 24 layers resident; up to 12 requests at once\n" in by_plan.out
    for word in ("accelerator", "link", "gpu-only"):
        assert word not in ran.out, word
        assert word not in by_plan.out, word
    served = commands.run(*ALONE, *FEW, "--plan", str(file), "--json")
    (run,) = json.loads(served.out)["runs"]
    assert run["busy"].keys() == {"CPU", "host memory"}
    assert run["busy"]["CPU"] == pytest.approx(1.0, abs=0.01)
    (planned,) = json.loads(commands.run(*ALONE, *FEW, "--json").out)["runs"]
    assert planned["planned_tokens_per_s"] == pytest.approx(planned["tokens_per_s"], rel=0.01)
    assert planned["tokens_per_s"] == run["tokens_per_s"]


def test_layers_on_the_disk_of_a_host_alone_are_read_in_every_sweep(commands: Commands) -> None:
    large = ("simulate", "llama-3.1-70b", *ALONE[2:], "--requests", "2", "--generate", "8")
    large = (*large, "--objective", "latency", "--disk")
    usual, slow = (
        json.loads(commands.run(*large, rate, "--json").out)["runs"][0]
        for rate in ("6GB/s", "2GB/s")
    )
    for run in (usual, slow):
        assert run["planned_tokens_per_s"] == pytest.approx(run["tokens_per_s"], rel=0.01)
    # 47 layers of 1.7 GB
    assert slow["tpot"]["mean_s"] == pytest.approx(47 * 1.711 / 2, rel=0.01)
    assert usual["tpot"]["mean_s"] == pytest.approx(slow["tpot"]["mean_s"] / 3, rel=0.05)
    assert 0.9 < slow["busy"]["disk"] < 1


def test_cores_of_a_host_alone_compute_in_proportion(commands: Commands) -> None:
    ran = commands.run(*ALONE, *FEW, "--host-cores", "2,4", "--json")
    two, four = (run["tokens_per_s"] for run in json.loads(ran.out)["runs"])
    assert four == pytest.approx(2 * two, rel=0.02)


def test_a_host_alone_has_one_strategy_and_policy(commands: Commands) -> None:
    for option in (("--strategy", "ride-along"), ("--policy", "neo")):
        ran = commands.run(*ALONE, *FEW, *option)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert "there is nothing to choose: leave --strategy and --policy out" in ran.err
    usual = commands.run(*ALONE, *FEW)
    for strategy in ("gpu-only", "auto"):  # the latter is what `serve` does by itself
        same = commands.run(*ALONE, *FEW, "--strategy", strategy)
        assert (same.status, same.out) == (0, usual.out), same.err


def test_no_rate_is_planned_for_steps_that_are_chosen_as_they_come(commands: Commands) -> None:
    runs = {
        strategy: json.loads(commands.run(*SIMULATE, *FEW, *strategy, "--json").out)["runs"][0]
        for strategy in ((), ("--strategy", "auto"))
    }
    assert runs[()]["planned_tokens_per_s"] > 0
    assert runs["--strategy", "auto"]["planned_tokens_per_s"] is None


def test_each_of_several_plans_says_which_values_it_serves(commands: Commands) -> None:
    asked = ("simulate", "llama-3.1-8b", "--accelerator", "t4", "--requests", "40")
    ran = commands.run(*asked, "--generate", "32", "--host-cores", "4,8,16")
    plans = [line for line in ran.out.splitlines() if line.startswith("plan")]
    served = [re.match(r"plan for ([\d, ]+) host cores: ", plan) for plan in plans]
    assert len(plans) > 1
    assert ", ".join(each[1] for each in served if each) == "4, 8, 16"
    (alike,) = (
        line
        for line in commands.run(*SIMULATE, *FEW, "--host-cores", "2,4").out.splitlines()
        if line.startswith("plan")
    )
    assert alike.startswith("plan: ")


def test_rows_that_leave_the_host_idle_say_so(commands: Commands) -> None:
    ran = commands.run(*SIMULATE, *FEW, "--host-cores", "2,4,8")
    said = "with 2, 4, 8: the plan leaves the host's cores idle, none found is faster"
    assert ran.out.splitlines()[-1] == said


def test_plans_for_a_host_alone_and_layers_on_a_disk_without_a_rate_are_refused(
    commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    alone = ("plan", SIMULATE[1], "--accelerator", "none", "--host", "g5.4xlarge")
    assert commands.run(*alone, *FEW, "--output", str(file)).status == 0
    ran = commands.run(*SIMULATE, *FEW, "--plan", str(file))
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "it is for a host alone" in ran.err
    small = ("simulate", "llama-3.1-70b", "--accelerator", "t4", "--host", "g4dn.4xlarge")
    commands.run("plan", *small[1:], *FEW, "--output", str(file))
    ran = commands.run(*small, *FEW, "--plan", str(file), "--disk", "none")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "it reads layers from disk, whose rate is not known; say it by --disk" in ran.err


def test_plans_of_other_models_types_and_jobs_are_refused(
    commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    commands.run("plan", *SIMULATE[1:], *FEW, "--output", str(file))
    other = commands.run("simulate", "qwen3-8b", *SIMULATE[2:], *FEW, "--plan", str(file))
    assert "it is for another model, llama-3.1-8b" in other.err
    edited = {**json.loads(file.read_text("utf-8")), "precision": "float16"}
    file.write_text(json.dumps(edited), "utf-8")
    ran = commands.run(*SIMULATE, *FEW, "--plan", str(file))
    assert "it is for float16, and this model comes to bfloat16" in ran.err
    commands.run("plan", *SIMULATE[1:], *FEW, "--offline", "--output", str(file))
    assert "it is of a batch job" in commands.run(*SIMULATE, *FEW, "--plan", str(file)).err
    assert "No such file" in commands.run(*SIMULATE, *FEW, "--plan", "none.json").err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--pinned-memory", "1GiB"], "No such option"),
        (["--quantization", "int3"], "cannot plan for quantization 'int3'"),
        (["--disk", "fast"], "'fast' is not a rate (--disk)"),
        (["--policy", "neo", "--strategy", "asymmetric"], "asymmetric and --policy both say"),
        (["--policy", "foo"], "unknown policy 'foo'"),
        (["--objective", "latency", "--rate", "1"], "leave --rate out, or plan with"),
        (["--objective", "latency", "--rates", "1,2"], "leave --rates out, or plan with"),
        (["--strategy", "fastest"], "unknown strategy 'fastest'; use one of: auto, gpu-only"),
        (
            ["--strategy", "simple"],
            "a policy, which plans keep to: use --policy simple; strat",
        ),
        (["--rates", "1,x"], "--rates '1,x': 'x' is not a number above 0"),
        (["--rates", "0,1"], "'0' is not a number above 0"),
        (["--rates", "nan"], "'nan' is not a number above 0"),
        (["--rates", ""], "'' is not a number above 0"),
        (["--rates", "1", "--rate", "1"], "--rate and --rates both say"),
        (["--rates", "1", "--generate", "5,6"], "are both lists; vary one thing at a time"),
        (["--generate", "5,0"], "'0' is not a number above 0"),
        (["--generate", "5,x"], "--generate '5,x' is no number of tokens"),
        (["--workload", "osc", "--generate", "5,6"], "--generate and --workload both say"),
        (["--host-cores", "2,2.5"], "'2.5' is not a number above 0"),
        (["--host-cores", "4,100000"], "--host-cores 100000: no host has more than 1024 cores"),
        (["--rate", "0"], "--rate must be above 0"),
        (["--rate", "1e-320"], "at least 1e-06, not 1e-320"),
        (["--rates", "1,1e-320"], "at least 1e-06, not 1e-320"),
        (["--host-cores", "2," + "9" * 5000], "is not a number above 0"),
        (["--generate", "2," + "9" * 5000], "is not a number above 0"),
        (["--requests", "99999999999"], "Invalid value"),
        (["--trace", "none.csv"], "trace none.csv: No such file"),
        (["--trace", "none.csv", "--generate", "1,2"], "--generate would mean nothing beside"),
        (["--rates", "1,2", "--timeline", "t.json"], "--timeline shows one run"),
        (["--requests", "2", "--timeline", "/none/t.json"], "cannot write /none/t.json"),
        (["--gpu-memory", "1GiB"], "the model does not fit"),
        (["--prompt", "200000"], "the model takes 131072"),
        (["--requests", "0"], "Invalid value"),
    ],
)
def test_bad_input_is_one_line(commands: Commands, args: list[str], message: str) -> None:
    ran = commands.run(*SIMULATE, *args)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err


def test_without_an_accelerator_both_remedies_are_told(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for command in ("simulate", "plan"):
        ran = commands.run(command, "qwen3-0.6b")
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "this machine was not measured: run `tandem profile`, whose figures" in ran.err
        assert "--accelerator 'none' (the host alone), a TOML file, or one of: a10, " in ran.err


def test_cores_of_a_host_that_does_not_count_them_are_refused(commands: Commands) -> None:
    args = ("simulate", "qwen3-0.6b", "--accelerator", "small", *FEW, "--host-cores", "4")
    ran = commands.run(*args)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "does not say how many cores" in ran.err


def test_simulating_needs_no_torch() -> None:
    program = (
        f"import sys; from tandem.cli.main import main; main({[*SIMULATE, *FEW]});"
        "heavy = {'torch', 'transformers', 'fastapi', 'tokenizers', 'tandem.engine',"
        "'tandem.kernels', 'tandem.models.model'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "[]"
