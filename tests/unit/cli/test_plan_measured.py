"""`tandem plan` on what `tandem profile` measured: what is used, what is said, what is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.profiles import KERNELS, MACHINE, attention_times, profile
from tests.unit.cli.conftest import Commands, Ran

from tandem.devices import this_machine
from tandem.memory import peaks
from tandem.profiling.measurements import (
    LinearTimes,
    MemoryRates,
    Striping,
    ThreadPoint,
    ThreadRates,
)
from tandem.profiling.profile import Profile
from tandem.profiling.profile_file import profile_path, write_profile

MODEL = ("plan", "opt-1.3b", "--requests", "20", "--prompt", "100", "--generate", "20")
Plan = Callable[..., Ran]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """On the machine of the test profile, with memory for a small model; its profile's path."""
    memory = replace(peaks.read_host_memory(), total_bytes=16 << 30, cgroup_limit_bytes=None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(this_machine, "this_machine", lambda environment: MACHINE)
    monkeypatch.setattr(this_machine, "code_digest", lambda: KERNELS)
    monkeypatch.setattr(peaks, "read_host_memory", lambda: memory)
    return profile_path(tmp_path / "tandem", MACHINE)


def test_a_card_in_the_measured_host(commands: Commands, here: Path) -> None:
    write_profile(profile(), here)
    ran = commands.run(*MODEL, "--accelerator", "a10g", "--host", "measured")
    assert (ran.status, ran.err) == (0, "")
    assert "on NVIDIA A10G, Test CPU with 2 threads, measured" in ran.out
    assert "measured here on 2026-01-02T03:04:05+00:00: the host's memory and attention" in ran.out
    assert "assumed, from data sheets and efficiencies: the accelerator and its link" in ran.out
    assert "no plan" not in ran.out  # times that were measured follow no rates


def test_a_measured_card_and_link(commands: Commands, here: Path) -> None:
    write_profile(profile(accelerator=True), here)
    both = commands.run(*MODEL, "--accelerator", "measured")
    assert (both.status, both.err) == (0, "")
    assert "on Test card, Test CPU with 2 threads, measured" in both.out
    assert "the accelerator, its link and the host" in both.out
    assert (
        "all but maps and attention on the accelerator runs at the rate of its memory" in both.out
    )
    # OPT's head of 50,272 times 2,048 elements, of which 16 million were measured
    said = (
        "extrapolated: 102,957,056 weights of a matrix on the accelerator; measured are 1,000,000 "
    )
    assert said in both.out
    elsewhere = commands.run(*MODEL, "--accelerator", "measured", "--host", "server-genoa")
    assert "the host, from data sheets" in elsewhere.out
    noted = commands.run(*MODEL, "--accelerator", "measured", "--host", "g5.4xlarge", "--json")
    assert json.loads(noted.out)["basis"][2].startswith("AWS g5.4xlarge: ")
    limited = commands.run(*MODEL, "--accelerator", "h100", "--host", "measured", "--json")
    assert "no faster than measured here" in json.loads(limited.out)["basis"][1]


def test_a_measured_card_that_is_slow_in_bfloat16_is_planned_for_in_float16(
    commands: Commands, here: Path
) -> None:
    model = ("plan", "qwen3-0.6b", *MODEL[2:], "--accelerator", "measured")
    write_profile(profile(accelerator=True), here)
    assert "billion parameters, bfloat16\n" in commands.run(*model).out
    write_profile(without_bfloat16(), here)
    ran = commands.run(*model)
    assert "billion parameters, float16\n" in ran.out
    assert "Planned in float16: this machine computes 8.0 times as fast in it" in ran.out


def without_bfloat16() -> Profile:
    """A card that takes eight times as long in it."""
    whole = profile(accelerator=True)
    card = whole.accelerator
    assert card is not None
    linear = tuple(slowed(each) if each.kind == "bfloat16" else each for each in card.linear)
    return replace(whole, accelerator=replace(card, linear=linear))


def slowed(times: LinearTimes) -> LinearTimes:
    surface = times.surface
    seconds = tuple(tuple(8 * each_s for each_s in row) for row in surface.seconds)
    return replace(times, surface=replace(surface, seconds=seconds))


def test_the_host_alone(commands: Commands, here: Path) -> None:
    write_profile(profile(), here)
    ran = commands.run(*MODEL, "--accelerator", "none", "--host", "measured")
    assert (ran.status, ran.err) == (0, "")
    assert "Fits the host's memory" in ran.out
    assert "Best: the host alone: weights resident, " in ran.out
    assert "extrapolated: " in ran.out
    assert "--accelerator none --strategy gpu-only" in ran.out
    for word in ("link", "on the accelerator", "cores", "If rates"):
        assert word not in ran.out, word
    found = json.loads(
        commands.run(*MODEL, "--accelerator", "none", "--host", "measured", "--json").out
    )
    assert found["host_only"]
    assert found["extrapolated"]
    assert found["plan"]["host_blocks"] == 0


def test_what_was_measured_alone_has_no_rates_to_be_wrong(commands: Commands, here: Path) -> None:
    write_profile(profile(), here)
    alone = ("--accelerator", "none", "--host", "measured")
    ran = commands.run(*MODEL, *alone, "--disk", "none", "--robustness")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "all that this plan rests on were measured; leave it out" in ran.err


def test_without_an_accelerator_it_is_this_machine_if_it_was_measured(
    commands: Commands, here: Path
) -> None:
    unmeasured = commands.run(*MODEL)
    assert (unmeasured.status, unmeasured.err.count("\n")) == (2, 1)
    assert "no accelerator is named, and this machine was not measured: run `tandem profile`" in (
        unmeasured.err
    )
    write_profile(profile(), here)
    alone = ("--accelerator", "none", "--host", "measured")
    ran, named = commands.run(*MODEL), commands.run(*MODEL, *alone)
    said = "no --accelerator is named: this machine's host alone, its profile has no accelerator\n"
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.count(said) == 1
    assert ran.out.replace(said, "") == named.out
    assert commands.run(*MODEL, "--host", "measured").out == ran.out
    other = commands.run(*MODEL, "--host", "desktop-ddr5")
    assert (other.status, other.err.count("\n")) == (2, 1)
    assert "this machine's profile has none for --host desktop-ddr5" in other.err
    write_profile(profile(accelerator=True), here)
    ran, named = commands.run(*MODEL), commands.run(*MODEL, "--accelerator", "measured")
    said = "no --accelerator is named: this machine\n"
    assert ran.out.replace(said, "") == named.out
    assert said in ran.out
    here.write_text("{")
    refused = commands.run(*MODEL)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "is corrupt" in refused.err
    assert refused.err.endswith("to measure anew, or name one with --accelerator\n")


def test_probes_that_were_hurried_are_counted(commands: Commands, here: Path) -> None:
    write_profile(replace(profile(), hurried=("memory", "linear, float16")), here)
    for words in (("none",), ("a10g",)):
        ran = commands.run(*MODEL, "--accelerator", *words, "--host", "measured")
        assert "; 2 of its probes in one round as the time ran short" in ran.out


def test_what_was_measured_is_simulated(commands: Commands, here: Path) -> None:
    write_profile(profile(accelerator=True), here)
    asked, alone = ("simulate", *MODEL[1:], "--json"), ("none", "--host", "measured")
    for words in ((), ("--accelerator", "measured"), ("--accelerator", *alone)):
        ran = commands.run(*asked, *words)
        assert (ran.status, ran.err) == (0, "")
        (run,) = json.loads(ran.out)["runs"]
        assert "Test CPU with 2 threads, measured" in run["hardware"]
        assert run["planned_tokens_per_s"] == pytest.approx(run["tokens_per_s"], rel=0.05), words
    mixed = commands.run(*asked, "--accelerator", "a10g", "--host", "measured")
    assert (mixed.status, mixed.err) == (0, "")
    refused = commands.run(*asked, "--host-cores", "2,4")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "this machine was measured with the cores that it has" in refused.err


def test_measured_and_none_may_be_in_any_case(commands: Commands, here: Path) -> None:
    write_profile(profile(), here)
    for usual in (("a10g", "measured"), ("none", "measured")):
        plans = {
            commands.run(*MODEL, "--accelerator", card, "--host", host, "--disk", disk).out
            for card, host, disk in ((*usual, "none"), (*(name.upper() for name in usual), "None"))
        }
        (plan,) = plans
        assert "Predicted from what was measured here" in plan


def test_a_batch_job_attends_with_the_threads_that_are_best(commands: Commands, here: Path) -> None:
    found = profile()
    sweep = tuple(
        ThreadPoint(n, ThreadRates(300e9, rate, 10e9), None) for n, rate in ((1, 225e9), (2, 150e9))
    )
    fast = attention_times("float16")
    times = tuple(tuple(each / 20 for each in row) for row in fast.surface.seconds)
    fast = replace(fast, surface=replace(fast.surface, seconds=times))
    host = replace(found.host, sweep=sweep, attention=(fast,), memory=MemoryRates(3e11, 3e11, 1e11))
    write_profile(replace(found, host=host), here)
    job = (*MODEL[:-1], "400", "--accelerator", "a10g", "--host", "measured", "--offline")
    job = (*job, "--gpu-memory", "3GiB")
    ran = commands.run(*job)
    assert (ran.status, ran.err) == (0, "")
    said = "1 of 2 attend, to 225 GB/s of keys and values, 2 to 150; 1 left for launches"
    assert f"  CPU threads            {said}\n" in ran.out
    plan = json.loads(commands.run(*job, "--json").out)["plan"]
    assert (plan["threads"], plan["notes"][-1]) == (1, f"CPU threads: {said}")


def test_a_measured_disk_is_read_from(commands: Commands, here: Path) -> None:
    write_profile(profile(), here)
    large = ("plan", "llama-2-13b", *MODEL[2:], "--accelerator", "none", "--host", "measured")
    ran = commands.run(*large)
    assert (ran.status, ran.err) == (0, "")
    assert "the host's memory, products, attention, the disk of /data" in ran.out
    assert " of 40 layers read from disk" in ran.out
    found = json.loads(commands.run(*large, "--json").out)
    reads = found["prediction"]["candidate"]["on_disk"]
    # 3 GB/s, 13 billion parameters in 40 layers of 16 bits
    read_s = reads * 317.2e6 * 2 / 3e9
    disk_s = found["prediction"]["decode_sweep"]["disk_s"]
    assert read_s < disk_s < read_s / 0.9  # beside products, which take at most a tenth


def test_of_several_disks_the_slowest_counts_and_all_at_once_are_told(
    commands: Commands, here: Path
) -> None:
    found = profile()
    other = replace(found.disks[0], folder="/more", bytes_per_s=2e9)
    striping = Striping((0.6, 0.4), 4.5e9)
    write_profile(replace(found, disks=(*found.disks, other), striping=striping), here)
    large = ("plan", "llama-2-13b", *MODEL[2:], "--accelerator", "none", "--host", "measured")
    told = "the disk of /more, the slowest (all of them at once read 4.5 GB/s: --disk 4.5GB/s)"
    slowest, both = (
        json.loads(commands.run(*large, "--json", *more).out)
        for more in ((), ("--disk", "4.5GB/s"))
    )
    assert told in slowest["basis"][0]
    reads = [each["prediction"]["candidate"]["on_disk"] for each in (slowest, both)]
    times = [each["prediction"]["decode_sweep"]["disk_s"] for each in (slowest, both)]
    # 2 GB/s for 4.5, which lose more to products
    assert times[0] / reads[0] > 1.8 * times[1] / reads[1]


def test_what_is_to_be_said_of_a_hosts_numbers_is_said(commands: Commands, tmp_path: Path) -> None:
    said = "\nAWS g5.4xlarge: memory is assumed to be read at 35 GB/s by each 8 cores; NEO's figure"
    for words in (("a10g",), ("t4", "--host", "g5.4xlarge"), ("none", "--host", "g5.4xlarge")):
        assert said in commands.run(*MODEL, "--accelerator", *words).out, words
    assert "memory is assumed" not in commands.run(*MODEL, "--accelerator", "t4").out


def test_a_described_host_alone_is_assumed(commands: Commands) -> None:
    ran = commands.run(*MODEL, "--accelerator", "none", "--host", "desktop-ddr5")
    assert ran.status == 0
    assert "Predicted from data sheets and assumed efficiencies, not measured" in ran.out
    assert "extrapolated" not in ran.out


def test_a_profile_may_lie_elsewhere(commands: Commands, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    write_profile(profile(), mine)
    words = ("--accelerator", "none", "--host", "measured", "--profile", str(mine))
    assert commands.run(*MODEL, *words).status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a10g", "--host", "measured"), "this machine has no profile"),
        (("measured",), "could measure; name a card, or use --accelerator none --host measured"),
        (("none",), "use --host measured, after `tandem profile`, or a name"),
        (("none", "--host", "desktop-ddr5", "--gpu-memory", "4GiB"), "--gpu-memory has no meaning"),
        (("a10g", "--profile", "x.json"), "nothing is to be measured; use --host measured"),
        (("none", "--host", "desktop"), "unknown host 'desktop'"),
    ],
    ids=["no profile", "no card's profile", "no host", "memory", "unused profile", "unknown host"],
)
def test_bad_input_is_one_line(commands: Commands, words: tuple[str, ...], message: str) -> None:
    ran = commands.run(*MODEL, "--accelerator", *words)
    assert ran.status == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not ran.out


def test_measuring_is_advised_where_there_is_a_card_only(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MACHINE.accelerator == "none"
    ran = commands.run(*MODEL, "--accelerator", "measured")
    assert "this machine has no profile" in ran.err
    assert "run `tandem profile`" not in ran.err
    carded = replace(MACHINE, accelerator="Test card")
    monkeypatch.setattr(this_machine, "this_machine", lambda environment: carded)
    assert "run `tandem profile` first" in commands.run(*MODEL, "--accelerator", "measured").err


def test_a_profile_without_a_card_or_that_is_refused_is_one_line(
    commands: Commands, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profile(profile(), here)
    ran = commands.run(*MODEL, "--accelerator", "measured")
    assert ran.status == 2
    assert "the profile has no accelerator (accelerator and link: there is none)" in ran.err
    monkeypatch.setattr(this_machine, "code_digest", lambda: "new")
    ran = commands.run(*MODEL, "--accelerator", "none", "--host", "measured")
    assert ran.status == 2
    assert "is old: it was measured with other kernels" in ran.err
    assert "run `tandem profile` to measure anew" in ran.err
    mine = here.with_name("my own.json")
    words = ("--accelerator", "none", "--host", "measured", "--profile", str(mine))
    assert f"run `tandem profile --output '{mine}'` first" in commands.run(*MODEL, *words).err
    write_profile(profile(), mine)
    assert f"run `tandem profile --output '{mine}'` to mea" in commands.run(*MODEL, *words).err
    here.write_text("{")
    ran = commands.run(*MODEL, "--accelerator", "none", "--host", "measured")
    assert ran.status == 2
    assert "is corrupt" in ran.err
