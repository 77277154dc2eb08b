"""`tandem profile`: what it prints and stores, and what it refuses."""

import json
import os
import re
from pathlib import Path

import pytest
from tests.support.profiles import KERNELS, MACHINE, profile
from tests.unit.cli.conftest import Commands

import tandem.kernels
from tandem.devices import this_machine
from tandem.kernels import native
from tandem.probes import effort
from tandem.profiling.profile import Machine, Profile
from tandem.profiling.profile_file import profile_path, read_profile, write_profile


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """On the machine of the test profile; returns where its profile lies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(this_machine, "this_machine", lambda environment: MACHINE)
    monkeypatch.setattr(this_machine, "code_digest", lambda: KERNELS)
    return profile_path(tmp_path / "cache" / "tandem", MACHINE)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing is measured: a known profile is the result; returns the disks asked for."""
    asked: list[str] = []
    profiler = pytest.importorskip("tandem.probes.profiler")

    def run_profile(subject: object, effort: object, **how: object) -> Profile:
        asked.extend(map(str, subject.disks))  # pyright: ignore[reportAttributeAccessIssue]
        return profile()

    monkeypatch.setattr(profiler, "run_profile", run_profile)
    monkeypatch.setattr(native, "choose_isa", lambda: "generic")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.0, 0.0))
    return asked


def test_a_profile_is_measured_stored_and_printed(
    commands: Commands, here: Path, probes: list[str]
) -> None:
    ran = commands.run("profile", "--disk", "/data", "--disk", "/more")
    assert ran.status == 0
    assert probes == ["/data", "/more"]
    assert "Test CPU, 2 threads on cores 0 1" in ran.out
    assert "read 20  write 10  copy 8" in ran.out
    assert "one reader 1  4 threads, 4 MiB at once 3" in ran.out
    assert f"stored in {here}" in ran.out
    assert "not measured: accelerator and link: there is none" in ran.err
    assert read_profile(here, MACHINE, KERNELS) == profile()


def test_a_busy_machine_is_warned_of(
    commands: Commands, probes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "busy" not in commands.run("profile").err
    monkeypatch.setattr(os, "getloadavg", lambda: (7.25, 0.0, 0.0))
    assert "others keep the processor busy (load average 7.2)" in commands.run("profile").err


def test_a_stored_profile_is_shown_without_measuring(commands: Commands, here: Path) -> None:
    write_profile(profile(accelerator=True), here)
    shown = commands.run("profile", "--show")
    assert shown.status == 0
    assert "host to accelerator, GB/s" in shown.out
    assert re.search(r"1 threads, GB/s +read 12  attention 10  one row 11\n", shown.out)
    assert re.search(r"2 threads, GB/s +read 20  attention 18  one row 19\n", shown.out)
    assert re.search(r"  the link busy +read 14  attention 12  one row 13\n", shown.out)
    # 16 rows of 2,048 keys at 20 ns each; 5 TFLOP/s; of weights and of keys and values
    _, _, card = shown.out.partition("Test card")
    assert re.search(r"attention float16 +million keys/s, context 64 2048", card)
    assert re.search(r"rows 16 +45.6  49.8", card)
    assert re.search(r"prompts' attention float16 +TFLOP/s, tokens 64 512 2048", card)
    assert re.search(r"prompts 4 +5  5  5", card)
    assert re.search(r"weights int4/64, GB/s +quantize 5  dequantize 200 \(of 16 bits\)", card)
    _, _, at_once = card.partition("all at once, GB/s")
    # of 22 GB/s attention asks for 18, both directions for 15 each, a disk for 5.1 by its charge
    said = r"  attention +alone 18  together 11  as plans predict 7.46 \(-32%\)"
    assert re.search(said, at_once)
    assert re.search(r"  disks +alone 3  together 2.8  as plans predict ", at_once)
    assert re.search(r"kv int4, GB/s +quantize 100  dequantize 300 \(of 16 bits\)", card)
    printed = json.loads(commands.run("profile", "--show", "--json").out)
    assert printed["host"]["memory"]["read_bytes_per_s"] == 20e9
    assert printed["host"]["sweep"][1]["beside_link"]["attention_bytes_per_s"] == 12e9
    write_profile(profile(), here)
    assert "the link busy" not in commands.run("profile", "--show").out


def test_output_goes_where_it_is_wanted(
    commands: Commands, tmp_path: Path, probes: list[str]
) -> None:
    ran = commands.run("profile", "--output", str(tmp_path / "mine.json"), "--json")
    assert json.loads(ran.out)["machine"]["cpu"] == "Test CPU"
    assert read_profile(tmp_path / "mine.json", MACHINE, KERNELS) == profile()
    assert not (tmp_path / "cache").exists()


def test_a_refused_profile_is_named_and_measured_anew(
    commands: Commands, here: Path, probes: list[str]
) -> None:
    here.parent.mkdir(parents=True)
    here.write_text("{")
    ran = commands.run("profile")
    assert ran.status == 0
    assert "is corrupt" in ran.err
    assert "measuring anew" in ran.err
    assert read_profile(here, MACHINE, KERNELS) == profile()


def test_nothing_stored_or_nowhere_to_store_is_one_line(
    commands: Commands, tmp_path: Path, probes: list[str]
) -> None:
    (tmp_path / "file").touch()
    for words, reason in (
        (("--show",), "this machine has no profile"),
        (("--output", str(tmp_path)), "it is a folder"),
        (("--output", str(tmp_path / "file" / "x")), "cannot write the profile"),
    ):
        ran = commands.run("profile", *words)
        assert ran.status == 2, words
        assert reason in ran.err
        assert len(ran.err.splitlines()) == 1
        assert not ran.out


def test_without_compiled_kernels_there_is_nothing_to_measure(
    commands: Commands, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_extension", None)
    ran = commands.run("profile")
    assert ran.status == 2
    assert "compiled ones could not be" in ran.err
    assert not here.parent.exists()


def test_threads_are_those_that_an_engine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = this_machine.this_machine({})
    assert isinstance(found, Machine)
    assert 1 <= found.threads <= len(found.cores)
    assert this_machine.this_machine({"OMP_NUM_THREADS": "1"}).threads == 1
    assert this_machine.this_machine({"OMP_NUM_THREADS": "many"}) == found


def test_other_kernels_or_probes_have_another_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    measuring, types = tmp_path / "probes", tmp_path / "spec"
    for folder in (measuring, types):
        folder.mkdir()
    for name in ("dtype.py", "kv_type.py", "weight_format.py"):
        (types / name).touch()
    assert this_machine.code_digest(tmp_path, measuring, types) == "none"
    found: list[str] = []
    for file, text in (
        ("_native.so", "one"),
        ("_native.so", "two"),
        ("triton_attention.py", "kernels"),
        ("probes/effort.py", "sizes"),
        ("probes/effort.py", "other sizes"),
        ("spec/kv_type.py", "more types"),
        ("spec/dtype.py", "more types"),
        ("spec/weight_format.py", "more types"),
    ):
        (tmp_path / file).write_text(text)
        found.append(this_machine.code_digest(tmp_path, measuring, types))
    assert len({*found, "none"}) == 9


def test_the_probes_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    folder, kernels = Path(effort.__file__).parent, Path(tandem.kernels.__file__).parent
    types = folder.parent / "spec"
    assert this_machine.code_digest() == this_machine.code_digest(kernels, folder, types)
