import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Commands

from tandem.cli.engine_flags import ENGINE_FLAGS
from tandem.models.catalogue import CATALOGUE, known_models
from tandem.plan.online import OnlinePlan
from tandem.plan.plan_file import read_plan
from tandem.plan.weights import homes_by_layer
from tandem.planner import native
from tandem.spec.hardware_file import PAIRS

BEYOND = "9" * 400  # digits: as a float, infinity
PLAN = ("plan", "opt-30b", "--accelerator", "a4000", "--requests", "100")


def test_a_plan_shows_tiers_predictions_limits_and_what_was_rejected(commands: Commands) -> None:
    ran = commands.run(*PLAN, "--policy", "ride-along", "--compare-policies")
    assert (ran.status, ran.err) == (0, "")
    for part in (
        "opt-30b: 30.0 billion parameters, float16",
        "Does not fit the accelerator:",
        "Best: ride-along:",
        "accelerator █",
        "time to first token",
        "time per output token",
        "No plan in s",  # steps of 2048 tokens, or such steps
        " exceeds ",
        "% of it",
        "all 100 requests",
        "Limited by: link to the accelerator, busy 9",
        "+10 GB/s link",
        "Rejected",
        "% less: ",
        "add --output FILE here, and then `tandem serve opt-30b --plan FILE`",
    ):
        assert part in ran.out, part
    assert max(len(line) for line in ran.out.splitlines()) < 160


def test_a_plan_without_compiled_loops_is_the_same_and_says_that_it_takes_longer(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "plan", "llama-3.1-8b", "--accelerator", "a10g", "--requests", "12", "--json"
    compiled = commands.run(*asked)
    monkeypatch.setattr(native, "loops", None)
    ran = commands.run(*asked)
    assert (ran.status, ran.out) == (0, compiled.out)
    assert ran.err.startswith("tandem: note: plans are the same and take several times as long")
    assert ran.err.count("\n") == 1


def test_layers_on_the_cpu_are_described_placed_and_ruled(
    commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    ran = commands.run(
        "plan", "llama-3.1-70b", "--accelerator", "rtx4090", "--host", "server-genoa",
        "--objective", "latency", "--output", str(file),
    )  # fmt: skip
    assert (ran.status, ran.err) == (0, "")
    assert "70 of 80 layers streamed, 68 of them on the CPU where no prompt is read" in ran.out
    plan = json.loads(file.read_text("utf-8"))["plan"]
    assert {run["home"] for run in plan["weights"]} == {"resident", "host"}
    (rule,) = plan["cpu_rules"]
    assert (rule["max_tokens"], len(rule["layers"])) == (1, 68)


def test_what_host_memory_does_not_hold_is_read_from_disk(
    commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    asked = (
        "plan", "llama-3.1-70b", "--accelerator", "rtx4090", "--host", "desktop-ddr5",
        "--requests", "20", "--max-num-batched-tokens", "512",
    )  # fmt: skip
    ran = commands.run(*asked, "--disk", "3GB/s", "--gantt", "--output", str(file))
    assert (ran.status, ran.err) == (0, "")
    for part in (
        " of 80 layers streamed, ", " of them from disk", "Limited by: disk, busy",
        "  +1 GB/s disk", "disk      ", "d read",
    ):  # fmt: skip
        assert part in ran.out, part
    homes = {run.home for run in read_plan(file).plan.weights}
    assert homes <= {"resident", "streamed", "host", "disk_streamed"}
    assert "disk_streamed" in homes
    json_ = json.loads(commands.run(*asked, "--disk", "6GB/s", "--json").out)
    assert json_["prediction"]["busy"]["disk"] > 0.9
    assert json_["prediction"]["candidate"]["on_disk"] > 0
    refused = commands.run(*asked, "--disk", "none")
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "any of these would do: --disk RATE" in refused.err


def test_on_the_host_alone_too(commands: Commands, tmp_path: Path) -> None:
    asked = (
        "plan", "llama-3.1-8b", "--accelerator", "none", "--host", "desktop-ddr4",
        "--cpu-memory", "8GiB", "--requests", "3",
    )  # fmt: skip
    ran = commands.run(*asked)
    assert (ran.status, ran.err) == (0, "")
    assert "Best: the host alone: " in ran.out
    assert " of 32 layers read from disk, " in ran.out
    assert "Limited by: disk, busy" in ran.out
    assert "add --output FILE here" in ran.out
    assert "accelerator" not in ran.out


def test_the_command_has_every_flag_that_the_plan_was_made_for(
    commands: Commands, tmp_path: Path
) -> None:
    given = {
        "--dtype": "float16",
        "--kv-cache-dtype": "int8",
        "--block-size": "32",
        "--gpu-memory": "14GiB",
        "--cpu-memory": "60GiB",
    }
    words = [word for pair in given.items() for word in pair]
    asked = ("plan", "opt-1.3b", "--accelerator", "a4000", "--policy", "ride-along")
    ran = commands.run(*asked, *words)
    assert (ran.status, ran.err) == (0, "")
    command = shlex.split(ran.out[ran.out.index("tandem serve") :])
    printed = dict(zip(command[3::2], command[4::2], strict=True))
    assert {flag: printed.get(flag) for flag in given} == given
    known = {f"--{flag.name.replace('_', '-')}" for flag in ENGINE_FLAGS}
    assert set(printed) <= known
    assert "--dtype" not in commands.run(*asked).out.partition("tandem serve")[2]


def test_the_command_says_how_much_kv_the_host_is_to_hold_beyond_the_usual(
    commands: Commands,
) -> None:
    alone = ("plan", "llama-3.1-8b", "--accelerator", "none", "--host", "server-genoa")
    ran = commands.run(*alone, "--json")
    plan = json.loads(ran.out)["plan"]
    kv_bytes = plan["device_blocks"] * 64 * 2 * 32 * 1024 * 4
    assert kv_bytes > 8 << 30
    printed = commands.run(*alone).out
    (size,) = re.findall(r" --cpu-memory (\d+)MiB", printed)
    assert kv_bytes + 8.03e9 * 2 < int(size) << 20 < kv_bytes + 8.03e9 * 2 + (3 << 30)
    few = commands.run(*alone, "--requests", "8").out
    assert "tandem serve" in few
    assert "--cpu-memory" not in few


def test_a_written_plan_is_what_the_command_runs(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "my plan.json"
    ran = commands.run(*PLAN, "--kv-cache-dtype", "int8", "--output", str(path))
    assert (ran.status, ran.err) == (0, "")
    command = shlex.split(ran.out[ran.out.index("tandem serve") :])
    assert command == ["tandem", "serve", "opt-30b", "--plan", str(path)]
    planned = read_plan(path)
    assert (planned.model_name, planned.kv_cache_dtype) == ("opt-30b", "int8")
    assert any(run.home != "resident" for run in planned.plan.weights)
    # the same through an engine's flags; what is decided need not be given
    assert commands.run("generate", "demo", "--prompt", "a", "--plan", str(path)).status == 0
    config = commands.configs[-1]
    assert {name: getattr(config, name) for name in planned.settings} == planned.settings


def test_json_holds_the_plan_that_is_written(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    ran = commands.run(*PLAN, "--json", "--output", str(path))
    found = json.loads(ran.out)
    plan = OnlinePlan.from_json(json.dumps(found["plan"]))
    assert plan.max_model_len == 640
    candidate = found["prediction"]["candidate"]
    decoding = candidate["device_rows"] + candidate["host_rows"]
    assert plan.max_num_seqs in (decoding, decoding + 1)  # one more where prompts are often read
    assert not found["fits_accelerator"]
    assert found["spare_bytes"] < 0
    assert found["prediction"]["tokens_per_s"] <= found["prediction"]["bound_tokens_per_s"] * 1.0001
    assert len(found["alternatives"]) == len(found["sensitivities"]) == 3
    assert (found["policy"], found["precision"]) == ("auto", "float16")
    for larger in found["sensitivities"]:
        base = larger["base_job_tokens_per_s"]
        assert larger["job_tokens_per_s"] / base - 1 == pytest.approx(larger["gain"])
    assert read_plan(path).plan == plan
    ceiling = found["ceiling"]
    reached = found["prediction"]["tokens_per_s"] / ceiling["tokens_per_s"]
    assert ceiling["reached"] == reached <= 1
    assert sum(ceiling["at"]["layers"].values()) == pytest.approx(48)


def test_a_trace_and_a_pair_s_file_may_be_given(commands: Commands, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,100,20\n60,300,40\n", "utf-8")
    pair = str(PAIRS / "a10g-scaled.toml")
    ran = commands.run("plan", "qwen3-0.6b", "--accelerator", pair, "--trace", str(trace), "--json")
    found = json.loads(ran.out)
    assert found["workload"]["prompt_tokens"] == 200
    assert found["workload"]["requests"] == 2
    assert found["prediction"]["job_s"] > 60
    # a scaled pair says nothing of cores
    assert [entry["change"] for entry in found["sensitivities"]] == [
        "+1 GB GPU memory",
        "+10 GB/s link",
    ]


def test_a_paper_s_workload_has_its_lengths_and_says_what_is_assumed(commands: Commands) -> None:
    asked = ("plan", "qwen3-0.6b", "--accelerator", "a10g", "--workload", "azure-conversation")
    ran = commands.run(*asked, "--requests", "300", "--rate", "2")
    assert (ran.status, ran.err) == (0, "")
    assert "\n300 requests of Azure conversation: 1" in ran.out
    assert "note: assumed of azure-conversation: lengths are independent and log-normal" in ran.out
    assert "arriving " in ran.out
    refused = commands.run(*asked, "--generate", "64")
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "--generate and --workload both say how long requests are" in refused.err


@pytest.mark.parametrize(
    ("args", "flags"),
    [
        (["--prompt", "512"], "--prompt"),
        (["--workload", "osc"], "--workload"),
        (["--generate", "64", "--rate", "2", "--seed", "1"], "--generate"),
        (["--requests", "10", "--seed", "0"], "--requests and --seed"),
    ],
)
def test_what_a_trace_makes_void_is_refused(
    commands: Commands, tmp_path: Path, args: list[str], flags: str
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,100,20\n", "utf-8")
    ran = commands.run(*PLAN[:4], "--trace", str(trace), *args)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"{flags} would mean nothing beside --trace" in ran.err


def test_a_trace_s_requests_come_at_a_rate_unless_they_have_times(
    commands: Commands, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps([{"prompt_tokens": 100, "generated_tokens": 20}] * 40), "utf-8")
    asked = (*PLAN[:4], "--trace", str(trace), "--rate", "2")
    first, other = (commands.run(*asked, "--json", *seed) for seed in ([], ["--seed", "1"]))
    assert (first.status, first.err) == (0, "")
    durations = [json.loads(ran.out)["workload"]["duration_s"] for ran in (first, other)]
    assert durations[0] != durations[1]
    assert all(10 < duration_s < 40 for duration_s in durations)
    trace.write_text('[{"prompt_tokens": 9, "generated_tokens": 2, "timestamp": 1}]', "utf-8")
    refused = commands.run(*asked)
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "trace trace.json has arrival times of its own" in refused.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--accelerator", "rtx4900"], "unknown accelerator 'rtx4900'; nearest: rtx4090"),
        (["--accelerator", "a10g", "--host", "g5.4xl"], "'g5.4xl'; nearest: g5.4xlarge"),
        (["--accelerator", "a10g", "--gpu-memory", "24"], "'24' has no unit (--gpu-memory)"),
        (["--accelerator", "a10g", "--cpu-memory", "-4GiB"], "'-4GiB' is below 0 (--cpu-mem"),
        (["--accelerator", "a10g", "--gpu-memory", "80GiB"], "--gpu-memory 80.0 GiB is more than"),
        (
            ["--accelerator", "a10g", "--tpot-bound", "100"],
            "'100' has no unit (--tpot-bound); write for example 100ms or 0.5s",
        ),
        (["--accelerator", "a10g", "--disk", "3.5"], "'3.5' has no unit (--disk); write"),
        (["--accelerator", "a10g", "--disk", "3GB"], "'3GB' is not a rate (--disk); write"),
        (["--accelerator", "a10g", "--disk", "3/s"], "'3/s' is not a rate (--disk); write"),
        (["--accelerator", "a10g", "--disk", "0GB/s"], "'0GB/s' is not a rate (--disk); write"),
        (["--accelerator", "a10g", "--tpot-bound", "1ms"], "nothing keeps 1 ms per token"),
        (["--accelerator", "a10g", "--objective", "joy"], "unknown objective 'joy'"),
        (
            ["--accelerator", "a10g", "--policy", "park-egger"],
            "policy 'park-egger' is one of batch jobs",
        ),
        (["--accelerator", "a10g", "--prompt", "many"], "--prompt 'many' is no number of tokens"),
        (["--accelerator", "a10g", "--prompt", "200000"], "the model takes 131072"),
        (
            ["--accelerator", "a10g", "--objective", "latency", "--rate", "5"],
            "one request at a time, however often they come: leave --rate out",
        ),
        (["--accelerator", "a10g", "--rate", "0"], "--rate must be above 0"),
        (["--accelerator", "a10g", "--rate", "1e-320"], "at least 1e-06, not 1e-320"),
        (["--accelerator", "a10g", "--requests", "99999999999"], "Invalid value"),
        (["--accelerator", "a10g", "--gpu-memory", f"{BEYOND}GiB"], "is not a size (--gpu-memory)"),
        (["--accelerator", "a10g", "--tpot-bound", f"{BEYOND}s"], "is not a duration (--tpot"),
        (["--accelerator", "a10g", "--disk", f"{BEYOND}GB/s"], "is not a rate (--disk)"),
        (["--accelerator", "a10g", "--prompt", "²"], "--prompt '²' is no number of tokens"),
        (["--accelerator", "a10g", "--prompt", "9" * 5000], "must be at least 1 token and at most"),
        (["--accelerator", "a10g", "--prompt", "600-400"], "is the wrong way round; write 400-600"),
        (["--accelerator", "a10g", "--quantization", "int4:²"], "plan for quantization 'int4:²'"),
        (["--accelerator", "a10g", "--quantization", "int4:" + "9" * 5000], "cannot plan for"),
        (["--accelerator", "a10g", "--quantization", "int4:0"], "group"),
        (["--accelerator", "a10g", "--workload", "chat"], "unknown workload 'chat'; use one of"),
        (["--accelerator", "a10g", "--trace", "none.csv"], "trace none.csv: No such file"),
        (["--accelerator", "a10g", "--dtype", "int3"], "unknown dtype 'int3'"),
        (["--accelerator", "a10g", "--gpu-memory", "1GiB"], "the model does not fit"),
        (["--accelerator", "a10g", "--requests", "0"], "Invalid value"),
        (["--accelerator", "a10g", "--block-size", "48"], "block_size must be 16, 32, 64, 128 or"),
        ([], "no accelerator is named, and this machine was not measured: run `tandem profile`"),
    ],
)
def test_bad_input_is_one_line(commands: Commands, args: list[str], message: str) -> None:
    ran = commands.run("plan", "llama-3.1-8b", *args)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err


def test_an_unknown_model_and_an_empty_trace_are_one_line(
    commands: Commands, tmp_path: Path
) -> None:
    ran = commands.run("plan", "lama-3.1-8b", "--accelerator", "a10g")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "near it: llama-3.1-8b" in ran.err
    unlike = commands.run("plan", "xyzzy", "--accelerator", "a10g")
    assert (unlike.status, unlike.err.count("\n")) == (2, 1)
    for known in known_models():
        assert re.search(rf"[ ,]{re.escape(known.name)}[,\n]", unlike.err)
    empty = tmp_path / "empty.csv"
    empty.touch()
    ran = commands.run("plan", "opt-6.7b", "--accelerator", "a10g", "--trace", str(empty))
    assert (ran.status, ran.err) == (2, f"tandem: error: trace {empty}: empty; give one with at "
                                     "least one request\n")  # fmt: skip


def test_experts_in_some_layers_only_are_planned(commands: Commands, tmp_path: Path) -> None:
    family = json.loads((CATALOGUE / "qwen3_moe.json").read_text("utf-8"))
    config = {**family["shared"], **family["models"]["qwen3-30b-a3b"]["config"]}
    text = json.dumps({**config, "mlp_only_layers": [0], "decoder_sparse_step": 4})
    (tmp_path / "config.json").write_text(text, "utf-8")
    asked = (
        "plan",
        str(tmp_path),
        "--accelerator",
        "a10g",
        "--gpu-memory",
        "12GiB",
        "--requests",
        "4",
    )
    ran = commands.run(*asked, "--json")
    assert (ran.status, ran.err) == (0, "")
    plan = OnlinePlan.from_object(json.loads(ran.out)["plan"])
    elsewhere = {i for i, home in homes_by_layer(plan.weights).items() if home != "resident"}
    assert elsewhere
    assert elsewhere <= {layer for layer in range(48) if layer % 4 == 3}


def test_what_cannot_be_written_is_one_line(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.planner.answer.answer", None)  # told before anything is planned
    ran = commands.run(*PLAN, "--output", str(tmp_path / "none" / "file"))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "cannot write" in ran.err


def test_planning_needs_no_torch() -> None:
    """Nor anything else that takes long to import: a plan is there within a second."""
    program = (
        f"import sys; from tandem.cli.main import main; main({list(PLAN)});"
        "heavy = {'torch', 'transformers', 'fastapi', 'tokenizers', 'asyncio', 'rich', 'scipy',"
        "'matplotlib', 'tandem.engine', 'tandem.runtime', 'tandem.kernels', 'tandem.scheduler'}"
        " & set(sys.modules); sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr


ONE_CARD = ("plan", "opt-1.3b", "--accelerator", "a10g")
ONE_TOKEN = (*ONE_CARD, "--requests", "40", "--prompt", "1000", "--generate", "1")


def test_a_bound_between_tokens_is_kept_by_requests_of_one(commands: Commands) -> None:
    free = commands.run(*ONE_TOKEN)
    assert (free.status, free.err) == (0, "")
    bounded = commands.run(*ONE_TOKEN, "--tpot-bound", "1us")
    assert (bounded.status, bounded.err) == (0, "")
    assert bounded.out == free.out
    wrong = commands.run(*ONE_TOKEN, "--tpot-bound", "fast")
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)
    assert commands.run(*ONE_TOKEN[:-1], "2", "--tpot-bound", "1us").status == 2


def test_policies_of_requests_of_one_token_have_no_time_per_token(commands: Commands) -> None:
    ran = commands.run(*ONE_TOKEN, "--compare-policies")
    policies = ran.out.partition("\nPolicies")[2]
    assert re.search(r"\n  auto +\d+(\.\d+)? tokens/s  \d+ at once  \S+: .+\n", policies)
    assert "per token" not in policies
    symmetric = r"\n  symmetric +in cohorts, which are of no use to those that generate a single"
    assert re.search(symmetric, policies)
    alone = commands.run(*ONE_CARD, "--objective", "latency", "--compare-policies")
    assert re.search(
        r"\n  symmetric +in cohorts, which are of no use to those that are a", alone.out
    )
    assert "per token" in alone.out.partition("\nPolicies")[2]


def test_a_first_token_is_said_to_come_no_sooner_near_the_most_that_can_be_read(
    commands: Commands,
) -> None:
    rare = ("plan", "llama-3.1-8b", "--accelerator", "a10g", "--prompt", "1000", "--generate", "4")
    for rate, least in (("1.8", False), ("3.5", True)):
        asked = (*rare, "--rate", rate, "--max-num-batched-tokens", "2048")
        ran = commands.run(*asked)
        assert (ran.status, ran.err) == (0, "")
        said = re.search(r"\n  time to first token    (at least )?[\d.]+ m?s from its arr", ran.out)
        assert said is not None
        assert bool(said[1]) == least
        found = json.loads(commands.run(*asked, "--json").out)["arrivals"]
        assert (found["keeps_up"], found["ttft_is_least"]) == (True, least)
