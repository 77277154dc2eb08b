"""`tandem bench`: its arguments and what it writes; suites are replaced, nothing is measured."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Commands

from tandem.bench import engine
from tandem.bench.records import BenchRow

ROW = BenchRow("a case", "tandem", "throughput", 3.0, "tokens/s", 4.0)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[engine.EngineBench]:
    """The benches that the engine suite was asked to run."""
    asked: list[engine.EngineBench] = []

    def run_engine(bench: engine.EngineBench, report) -> tuple[BenchRow, ...]:
        asked.append(bench)
        report("measuring")
        return (ROW,)

    monkeypatch.setattr(engine, "run_engine", run_engine)
    return asked


@pytest.mark.parametrize("args", [["bench"], ["bench", "--help"]])
def test_help_lists_the_suites(commands: Commands, args: list[str]) -> None:
    shown = commands.run(*args)
    assert (shown.status, shown.err) == (0, "")
    assert "engine" in shown.out
    assert "kernels" in shown.out
    assert "online" in shown.out


@pytest.mark.parametrize(
    ("suite", "flags"), [("engine", ["--json", "--quick"]), ("online", ["--json", "--layers"])]
)
def test_every_suite_has_help(commands: Commands, suite: str, flags: list[str]) -> None:
    shown = commands.run("bench", suite, "--help")
    assert (shown.status, shown.err) == (0, "")
    assert all(flag in shown.out for flag in flags)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["engine", "--json", "no/such/folder/r.json"], "cannot write no/such/folder/r.json"),
        (["engine", "--json"], "'--json' requires an argument"),
        (["engine", "--part", "wheels"], "no part 'wheels'; use one of: scheduler, growth, host"),
        (["online", "--load", "512"], "--load '512' is no load"),
        (["online", "--layers", "99"], "has 32 layers; lower --layers"),
        (["online", "--policy", "park-egger"], "policy 'park-egger' is one of batch jobs"),
        (["online", "--policy", "gpu-only/all"], "names no size of a step; write tokens"),
        (["online", "--strategy", "rendezvous"], "chooses no steps; use one of auto, neo, apex"),
        (["online", "--plot", "cells.pdf"], "--plot writes a PNG"),
        (["online", "--papers", "--virtual"], "leave --virtual or --papers out"),
        (["online", "--papers", "--plain"], "leave --plain or --papers out"),
        (["online", "--hardware", "abacus"], "no hardware description 'abacus'"),
        (["overlap", "--strategy", "fastest"], "unknown strategy 'fastest'; use one of: auto"),
        (["overlap", "--layers", "99"], "has 32 layers; lower --layers"),
        (["online", "--model", "abacus-7b"], "abacus-7b"),
        (["disk", "--dir", ".", "--dir", "./"], "--dir . is named twice"),
        (["disk", "--dir", "no/such/folder"], "--dir no/such/folder: there is no such folder"),
        (["disk", *["--dir", "."] * 5], "at most 4 disks; leave some out"),
    ],
)
def test_bad_arguments_are_one_line(
    commands: Commands, ran: list[engine.EngineBench], args: list[str], message: str
) -> None:
    failed = commands.run("bench", *args)
    assert failed.status == 2
    assert failed.err.splitlines()[-1].startswith("tandem: error: ")
    assert message in failed.err
    assert ran == []


def test_parts_of_the_engine_suite_are_chosen(
    commands: Commands, ran: list[engine.EngineBench]
) -> None:
    assert commands.run("bench", "engine").status == 0
    assert commands.run("bench", "engine", "--part", "growth").status == 0
    assert commands.run("bench", "engine", "--part", "host", "--part", "scheduler").status == 0
    assert [bench.parts for bench in ran] == [
        ("scheduler", "host"),
        ("growth",),
        ("scheduler", "host"),
    ]


def test_only_the_chosen_parts_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measuring(name: str):
        def measure(*_: object) -> tuple[BenchRow, ...]:
            measured.append(name)
            return (ROW,)

        return measure

    for name in ("scheduler", "growth", "host"):
        monkeypatch.setattr(engine, f"measure_{name}", measuring(name))
    rows = engine.run_engine(engine.QUICK.with_parts(["growth", "host"]), measured.append)
    assert measured == ["growth", *["host"] * len(engine.QUICK.hosts)]
    assert all(row.case.startswith(engine.QUICK_MARK) for row in rows)


def test_the_record_is_written_and_shown(
    commands: Commands, ran: list[engine.EngineBench], tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    done = commands.run("bench", "engine", "--quick", "--json", str(path))
    assert done.status == 0
    assert done.err == "measuring\n"
    assert ran == [engine.QUICK]
    assert "a case" in done.out
    record = json.loads(path.read_text("utf-8"))
    assert record["suite"] == "engine"
    assert record["command"].split()[0] == "tandem"
    assert record["rows"] == [ROW.as_json()]
    machine = record["machine"]
    assert machine["cores_usable"] == len(machine["affinity"]) > 0
    assert {"cpu", "threads", "memory_bytes", "gpus", "torch", "transformers", "tandem"} <= set(
        machine
    )


def test_without_quick_it_is_the_full_suite(
    commands: Commands, ran: list[engine.EngineBench]
) -> None:
    assert commands.run("bench", "engine").status == 0
    assert ran == [engine.FULL]
    assert ran[0].mark == ""
    assert engine.QUICK.mark
