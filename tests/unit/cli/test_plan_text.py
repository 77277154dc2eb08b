"""What a plan's text compares, and the command that it ends with."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.unit.cli.conftest import Commands

from tandem.cli.plan_beside import sensitivity_lines
from tandem.cli.plan_words import described
from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.option import Option
from tandem.planner.question import Question
from tandem.planner.rates import Prediction
from tandem.planner.search.simplicity import drawback
from tandem.planner.sensitivity import Sensitivity

USUAL = ("--max-num-batched-tokens", "2048")  # in smaller steps there is no cohort
COHORTS = ("plan", "llama-2-7b", "--accelerator", "t4", "--policy", "rendezvous", *USUAL)
SIZES = ("256", "8192")
FITS = ("plan", "llama-3.1-8b", "--accelerator", "a10g", "--host", "g5.4xlarge")


def test_what_plans_are_compared_by_is_said_where_it_is_not_the_throughput(
    commands: Commands,
) -> None:
    # of the usual size: in steps of others, a gigabyte more makes no difference
    ran = commands.run(*FITS, *USUAL, "--compare-policies")
    over_all = re.search(r"for 128000 output tokens, (\d+) tokens/s of the job\n", ran.out)
    assert over_all is not None
    steady = re.search(r"\n  throughput             (\d+) tokens/s steady", ran.out)
    assert steady is not None
    assert int(steady[1]) > int(over_all[1])
    ranked = re.search(
        r"\nRejected( \(of the job, where this plan makes (\d+) .*)",
        ran.out,
    )
    assert ranked is not None
    basis, rate = ranked[1], ranked[2]
    assert rate == over_all[1]
    for heading in ("Rejected", "Policies"):
        assert f"\n{heading}{basis}\n" in ran.out
    more = re.search(r"\nWith more(.*)\n  \+1 GB GPU memory +(\d+) tokens/s \(\+(.*)%\)", ran.out)
    assert more is not None
    base = float(more[2]) / (1 + float(more[3]) / 100)
    gained_over = re.fullmatch(
        re.escape(basis)
        + r"(?:; gains are over the (\d+) of the fastest plan known for this machine)?",
        more[1],
    )
    assert gained_over is not None
    assert abs(base / float(gained_over[1] or rate) - 1) < 0.004
    assert re.search(rf"\n  auto +{rate} tokens/s", ran.out)
    alone = commands.run(*FITS, "--policy", "gpu-only", "--objective", "latency")
    assert "\nWith more\n" in alone.out
    assert "steady" not in alone.out
    assert "\nRejected\n" in alone.out


def test_a_larger_machine_s_placement_is_said_where_it_is_another(commands: Commands) -> None:
    asked = ("plan", "opt-30b", "--accelerator", "a4000", "--requests", "100")
    ran = commands.run(*asked)
    found = json.loads(commands.run(*asked, "--json").out)["sensitivities"]
    assert re.search(r"Best: ride-along: \d+ of 48 layers streamed and \d+ of them on", ran.out)
    lines, others = ran.out.splitlines(), 0
    for entry in found:
        place = next(
            at for at, line in enumerate(lines) if line.startswith(f"  {entry['change']} ")
        )
        if lines[place + 1].startswith("    then "):
            others += 1
            placement = lines[place + 1].removeprefix("    then ")
            assert entry["description"].startswith(f"{placement}, ")
            assert placement not in ran.out.partition("With more")[0]
    assert 0 < others < len(found)
    alike = commands.run(*FITS, "--policy", "gpu-only", "--requests", "10").out
    assert "no difference\n" in alike
    assert "    then " not in alike


def test_what_a_simpler_plan_gives_up_is_no_gain_of_a_larger_machine(commands: Commands) -> None:
    out = commands.run(*FITS, "--tpot-bound", "500ms").out
    planned = re.search(r"\nRejected \(of the job, where this plan makes (\d+) tokens/s", out)
    assert planned is not None
    rejected = re.findall(r"^    (\d+) tokens/s, .*busy", out, re.MULTILINE)
    fastest = max(map(int, rejected))
    assert fastest > int(planned[1]) * 1.005
    over = re.search(r"\nWith more .*; gains are over the (\d+) of the fastest plan known", out)
    assert over is not None
    assert int(over[1]) >= fastest
    assert re.search(r"\n  \+8 cores +no difference\n", out)


def test_whether_a_model_fits_is_said_of_steps_of_a_size(commands: Commands) -> None:
    asked = ("plan", "llama-3.1-8b", "--requests", "10", "--max-num-batched-tokens")
    lacks = re.compile(r"\nDoes not fit .*: (.*) too large with .* in steps of (\d+) tokens\.\n")
    spare = re.compile(r"\nFits .*, with (.*) to spare for more KV in steps of (\d+) tokens\.\n")
    for card, said in (("t4", lacks), ("a10g", spare)):
        found = [said.search(commands.run(*asked, n, "--accelerator", card).out) for n in SIZES]
        sizes = {match[2]: match[1] for match in found if match}
        assert tuple(sizes) == SIZES
        assert len(set(sizes.values())) == len(SIZES)


def test_what_each_policy_comes_to_is_said(commands: Commands) -> None:
    out = commands.run(*FITS, "--tpot-bound", "500ms", "--compare-policies").out
    _, _, policies = out.partition("\nPolicies")
    best = re.search(r"\nBest: ([^,]+), ", out)
    assert best is not None
    assert re.search(rf"\n  auto +\d+ tokens/s .* at once  {re.escape(best[1])}\n", policies)
    plan = re.escape(best[1].partition(":")[0])
    assert re.search(
        rf"\n  gpu-only +\d+ tokens/s .* at once  {plan}, the plan of 'auto'", policies
    )
    assert re.search(r"\n  simple +\d+ tokens/s .* at once  ride-along: ", policies)
    assert "n-cpu-moe" not in policies


def test_nobody_is_said_to_lose_by_more_of_a_resource() -> None:
    def line(rate: float) -> str:
        option = Option(Candidate("gpu-only", 0, 1, 0), cast("Prediction", None), rate)
        base = replace(option, in_step_per_s=100.0)
        (line,) = sensitivity_lines([(Sensitivity("+1 link", option, base), "here")], "here")
        return line.split(maxsplit=2)[2]

    assert line(98.0) == "no gain"
    assert line(99.8) == line(100.2) == "no difference"
    assert line(102.0) == "102 tokens/s (+2.0%)"


def test_what_makes_a_plan_less_simple_is_said() -> None:
    def option(
        strategy: Strategy, streamed: int, tpot_s: float = 0.5, rate: float = 100.0
    ) -> Option:
        rates = SimpleNamespace(worst_tpot_s=tpot_s)
        prediction = cast("Prediction", SimpleNamespace(rates=rates))
        return Option(Candidate(strategy, streamed, 4, 0), prediction, rate, tpot_s)

    plain = option("gpu-only", 2)
    assert drawback(option("ride-along", 0, 0.4), plain) == "by a less simple strategy"
    assert drawback(option("gpu-only", 0, 0.6), plain) == "with more time per token"
    assert drawback(option("gpu-only", 3), plain) == "streams more layers"
    assert drawback(option("gpu-only", 1), plain) == "with a longer job"
    assert drawback(plain, plain) == "with a longer job"
    faster = option("gpu-only", 1, rate=100.8)
    assert drawback(faster, plain) == "no better as far as predictions tell"


def test_a_rejected_plan_that_is_slower_is_said_to_be(commands: Commands) -> None:
    out = commands.run(*FITS, "--tpot-bound", "500ms").out
    planned = re.search(r"\nRejected \(of the job, where this plan makes (\d+) tokens/s", out)
    assert planned is not None
    rejected = re.findall(r"^    (\d+) tokens/s, (.*): .* busy", out, re.MULTILINE)
    assert len(rejected) == 3
    for rate, why in rejected:
        if int(rate) < int(planned[1]):
            assert re.fullmatch(r"\d+\.\d% less", why)
        elif int(rate) > int(planned[1]):
            assert re.fullmatch(r"\d+\.\d% more, but by a less simple strategy", why)
    assert min(int(rate) for rate, _ in rejected) < int(planned[1])


def test_a_type_that_is_slow_there_is_said_first(commands: Commands) -> None:
    asked = ("plan", "llama-3.1-8b", "--accelerator", "t4", "--requests", "10", "--dtype")
    slow = commands.run(*asked, "bfloat16").out
    faster = "this machine computes 8.0 times as fast in float16 as in "
    assert slow.startswith(f"Try --dtype float16: {faster}bfloat16")
    assert commands.run(*asked, "bfloat16", "--offline").out.startswith("Try --dtype float16: ")
    assert faster not in commands.run(*asked, "float16").out
    assert "emulated" not in slow.splitlines()[0]
    single = " ".join(commands.run(*asked, "float32", "--offline").out.split())
    assert single.startswith(f"With the card itself, try --dtype float16: {faster}float32")
    alone = "accelerator executes float32 alone, for which this plan is: llama-3.1-8b: "
    assert alone in single


def test_where_bfloat16_has_no_units_a_plan_is_in_float16(
    commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    asked = ("plan", "qwen3-0.6b", "--accelerator", "t4", "--requests", "10")
    ran = commands.run(*asked, "--output", str(file))
    assert ran.out.startswith("qwen3-0.6b: 0.6 billion parameters, float16\n")
    assert "Planned in float16: this machine computes 8.0 times as fast in it as in the" in ran.out
    assert json.loads(file.read_text("utf-8"))["dtype"] == "float16"
    by_flags = commands.run(*asked).out.splitlines()[-1]
    assert by_flags.endswith(" --dtype float16")
    named = commands.run(*asked, "--dtype", "float16").out
    assert (named.splitlines()[-1], "Planned in" in named) == (by_flags, False)
    # the same question, so the same plan
    served = commands.run("simulate", *asked[1:], "--json").out
    assert json.loads(served)["runs"][0]["plan"] == json.loads(file.read_text("utf-8"))["plan"]
    assert "Planned in float16" in commands.run(*asked, "--offline").out
    assert "Planned in" not in commands.run(*asked[:3], "a10g", *asked[4:]).out
    assert commands.run(*asked[:3], "t4", *asked[4:], "--dtype", "bfloat16").out.startswith("Try")


def test_what_overflows_float16_stays_in_its_type(commands: Commands) -> None:
    ran = commands.run("plan", "gemma-2-2b", "--accelerator", "t4", "--requests", "10")
    note, question = ran.out.splitlines()[:2]
    assert note.startswith("note: this machine computes 8.0 times as fast in float16")
    assert note.endswith("but this model's activations exceed float16's range")
    assert question.endswith(" billion parameters, bfloat16")


def test_no_policy_stands_above_auto(commands: Commands) -> None:
    """Where passes of cohorts' own are best, which three of the policies have."""
    scarce = ("plan", "llama-2-7b", "--accelerator", "t4", "--dtype", "float16")
    ran = commands.run(*scarce, "--prompt", "100", "--generate", "200", "--compare-policies")
    compared = ran.out.partition("\nPolicies")[2]
    rates = dict(re.findall(r"\n  ([a-z0-9-]+) +([\d.]+) tokens/s ", compared))
    assert rates.keys() >= {"gpu-only", "ride-along", "asymmetric", "neo", "apex"}
    most = max(float(rate) for rate in rates.values())
    assert most == float(rates["auto"]) > 1.03 * float(rates["symmetric"])


def test_of_the_host_alone_the_size_of_steps_is_told_as_well() -> None:
    question = cast(Question, SimpleNamespace(host_only=True, model=SimpleNamespace(num_layers=32)))
    usual = Candidate("gpu-only", 0, 4, 0)
    small = usual._replace(step_tokens=128)
    told = [
        described(question, cast(Option, SimpleNamespace(candidate=each)))
        for each in (usual, small)
    ]
    assert told[0] == "the host alone: weights resident, 4 requests"
    assert told[1] == f"{told[0]}, steps of at most 128 tokens"


def test_no_job_is_said_to_exceed_what_nothing_exceeds(commands: Commands) -> None:
    """What bounds the steady state says so; prompts in step may spare what that bound counts."""
    streamed = commands.run("plan", "qwen3-30b-a3b", "--accelerator", "t4").out
    over_job = re.search(r", (\d+) tokens/s of the job\n", streamed)
    bound = re.search(
        r"\nNo plan in such steps exceeds ([\d.]+) tokens/s steady; this one reaches \d+% of it"
        r"(, and more over the job, whose requests are in step)?\n",
        streamed,
    )
    assert over_job is not None
    assert bound is not None
    assert (float(over_job[1]) > float(bound[1])) == bool(bound[2])
    assert bound[2], "else it is no such job any more: name another"
    assert re.search(r"\nNo plan .* steady; this one reaches \d+% of it\n", commands.run(*FITS).out)


def test_a_plan_that_is_no_better_to_what_predictions_tell_is_not_told_anew(
    commands: Commands,
) -> None:
    """Of 22 and 4 requests, 0.1% less time per token than of 21 and 5: once printed below it."""
    asked = ("plan", "llama-2-70b", "--accelerator", "l40s", "--host", "workstation")
    ran = commands.run(*asked, "--quantization", "int4")
    assert ran.out.count("\nBest: ") == 1
    assert "It takes its place" not in ran.out


def test_what_could_be_served_is_told_from_what_comes(commands: Commands) -> None:
    ran = commands.run(*FITS, "--rate", "1", "--requests", "200")
    no_plan = "no plan in steps of 2048 tokens exceeds"
    taken = re.search(rf"\nMakes (\d+) tokens/s with all places taken; {no_plan} \d+ ", ran.out)
    assert taken is not None
    throughput = re.search(r"\n  throughput +(\d+) tokens/s\n", ran.out)
    assert throughput is not None
    assert int(throughput[1]) < 140 < int(taken[1])
    assert f"\nWith more (with all places taken, where this plan makes {taken[1]} tok" in ran.out
    assert "\nA sweep with all places taken, " in ran.out


def test_a_mean_request_is_given_by_lane(commands: Commands) -> None:
    asked = (*COHORTS, "--workload", "osc")
    ran = commands.run(*asked)
    assert re.search(r"\n  time per output token  [\d.]+ ms; [\d.]+ s in cohorts\n", ran.out)
    assert re.search(r"\n  a mean request         [\d.]+ s; [\d.]+ (s|min) in cohorts\n", ran.out)
    said = json.loads(commands.run(*asked, "--json").out)["prediction"]
    assert said["main_request_s"] < 10 < 90 < said["cohort_request_s"] == said["request_s"]


def test_no_request_is_said_to_be_served_by_every_sweep_if_all_are_in_cohorts(
    commands: Commands,
) -> None:
    asked = (*COHORTS, "--gpu-memory", "2GiB", "--requests", "100")
    ran = commands.run(*asked)
    assert re.search(r"\n  time per output token  [\d.]+ s in cohorts\n", ran.out)
    assert re.search(r"\n  a mean request         \d+ min in cohorts\n", ran.out)
    said = json.loads(commands.run(*asked, "--json").out)["prediction"]
    assert said["main_request_s"] is None
    assert said["cohort_request_s"] == said["request_s"]


def test_a_plan_for_many_says_what_limits_the_time_per_token_of_few(commands: Commands) -> None:
    asked = (*COHORTS, "--workload", "osc", "--rate")
    few = commands.run(*asked, "1")
    at_once = re.search(r", (\d+) at once; up to ", few.out)
    assert at_once is not None
    assert re.search(r"\n  a mean request         [\d.]+ s; [\d.]+ s in cohorts\n", few.out)
    said = re.search(r"the plan is made for (\d+) at once; under so light a load,\n", few.out)
    assert said is not None
    places = re.search(r" (\d+) requests on the accelerator \+ (\d+) on the host", few.out)
    assert places is not None
    assert int(places[1]) + int(places[2]) == int(said[1]) > 4 * int(at_once[1])
    assert "\n                         --tpot-bound is what limits the time per token\n" in few.out
    bounded = commands.run(*asked, "1", "--tpot-bound", "500ms")
    assert re.search(r", \d at once; up to ", bounded.out)
    many = commands.run(*asked, "3.1")
    for out in (bounded.out, many.out):
        assert "the plan is made for" not in out


def test_embeddings_in_host_memory_need_the_plan_s_file(commands: Commands) -> None:
    # flags alone leave them on the accelerator, and fewer requests would have room
    ran = commands.run(*FITS)
    assert re.search("Best: [a-z-]+: (the MLPs of .* and )?embeddings in host memory, ", ran.out)
    assert "add --output FILE here, and then `tandem serve llama-3.1-8b --plan FILE`" in ran.out
    few = commands.run(*FITS, "--policy", "gpu-only", "--requests", "10")
    assert "Best: gpu-only: weights resident, 10 requests" in few.out
    assert "\n  tandem serve llama-3.1-8b --strategy gpu-only --max-num-seqs 10 " in few.out


def test_a_request_whose_kv_the_accelerator_holds_in_the_mean_says_what_of_longer_ones() -> None:
    for share, rows, said in (
        (1.0, 1, "1 request with all of its KV on the accelerator, of longer ones the rest on the"),
        (0.4, 2, "2 requests with 40% of their KV on the accelerator, the rest on the host"),
    ):
        assert said in Candidate("ride-along", 0, 0, rows, device_share=share).describe(8)
