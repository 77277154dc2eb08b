"""Whether auto is at least equal, and records of cells that were run apart."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.bench.online import rows as online_rows
from tandem.bench.online import selection, suite
from tandem.bench.online.joining import joined
from tandem.bench.online.overall import OVER_BEST, PREDICTED, SIMULATED, overall_rows
from tandem.bench.online.rows import PolicyFigures, best_other
from tandem.bench.records import BenchRecord, BenchRow, read_record, write_record
from tandem.cli import bench_online
from tandem.cli.bench_join import join
from tandem.probes.interleave import paired_ratio
from tandem.spec.errors import ConfigError

MACHINE = {"cpu": "one", "git_commit": "abc", "load_average": 0.1}


def figures(policy: str, *rates: float, auto: tuple[float, ...] | None = None) -> PolicyFigures:
    """A policy's; `auto`: windows of auto's other plan."""
    over = None if auto is None else paired_ratio(auto, rates)
    return PolicyFigures(policy, 1.0, 1.0, rates, over, 0, (), ())


def test_auto_is_held_against_the_best_by_the_lower_limit_of_pairs() -> None:
    """One bad window of seven: better by the median, not shown to be."""
    auto = (110.0, 111.0, 90.0, 112.0, 89.0, 88.0, 109.0)
    best = figures("neo", *(100.0,) * 7, auto=auto)
    found = best_other((figures("auto", *auto), figures("gpu-only", 50.0, auto=(1.0,)), best))
    assert found is not None
    assert best.auto_over is not None
    assert found.lower_95 is not None
    assert best.auto_over.median > 1 > found.lower_95
    assert (found.policy, found.equalled) == ("neo", False)
    assert "NOT shown to be equal to the best other, neo" in str(found)


def test_fewer_than_three_windows_show_nothing() -> None:
    """Neither a limit nor a verdict, be it of a policy that is far ahead or of the same plan."""
    auto, behind = figures("auto", 110.0, 111.0), figures("neo", 50.0, 51.0)
    for other in (behind, figures("neo", 110.0, 111.0)):
        found = best_other((auto, other))
        assert found is not None
        assert (found.lower_95, found.equalled) == (None, None)
        assert "no verdict: 2 windows of each, 3 are the least" in str(found)


def test_a_plan_that_is_autos_is_equal_and_nobody_else_is_none() -> None:
    found = best_other((figures("auto", *(5.0,) * 3), figures("apex", *(5.0,) * 3)))
    assert found is not None
    assert found.equalled
    assert best_other((figures("auto", 5.0),)) is None


def rows(case: str, limit: float, *predicted: float) -> tuple[BenchRow, ...]:
    """A cell's; plans by what was predicted, the last one told twice."""
    found = [
        BenchRow(case, f"virtual {n}", metric, value, "ratio", 1.0, (value, value))
        for n, value in enumerate((*predicted, predicted[-1]))
        for metric in (PREDICTED, SIMULATED)
    ]
    told = BenchRow(case, "virtual auto", OVER_BEST, limit, "ratio", 1.0, (limit, limit))
    return (*found, told)


def record(case: str, limit: float, *predicted: float) -> BenchRecord:
    made = rows(case, limit, *predicted)
    command = f"tandem bench online {case}"
    return BenchRecord("online", command, MACHINE, (*made, *overall_rows(made)))


def test_joined_records_are_one_over_all_their_cells() -> None:
    one, other = record("a", 1.02, 1.1, 0.95), record("b", 0.99, 1.2)
    quieter = replace(other, machine={**MACHINE, "load_average": 0.0})
    found = joined({"1.json": one, "2.json": quieter}, "tandem bench join")
    together = {(row.case, row.metric): row for row in found.rows if row.case.startswith("all")}
    assert together["all cells, 3 plans", "predicted, error"].value == pytest.approx(0.1)
    assert together["all cells, 2", "at least equal to the best other policy"].value == 0.5
    worst = together["all cells, 2", f"{OVER_BEST}, worst cell"]
    assert (worst.value, worst.spread) == (0.99, (0.99, 1.02))
    assert len(together) == 4
    assert {row.case for row in found.rows} >= {"a", "b"}
    assert found.notes == (
        "1.json: tandem bench online a", "2.json: tandem bench online b",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (record("a", 1.0, 1.0), "both have 'a'; leave one out"),
        (replace(record("b", 1.0, 1.0), suite="simulator"), "only records of 'online'"),
        (replace(record("b", 1.0, 1.0), machine={**MACHINE, "git_commit": "d"}), "'git_commit'"),
        (
            replace(
                record("b", 1.0, 1.0),
                rows=tuple(replace(row, variant="paced x") for row in rows("b", 1.0, 1.0)),
            ),
            "paced and virtual",
        ),
        (replace(record("b", 1.0, 1.0), rows=()), "2.json has no cell that was executed"),
        (
            replace(record("b", 1.0, 1.0), notes=("unfinished: 1 of 3 cells",)),
            "2.json is unfinished: 1 of 3 cells; run the others",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(second: BenchRecord, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        joined({"1.json": record("a", 1.0, 1.0), "2.json": second}, "")


def test_parts_of_one_name_in_two_folders_are_both_joined(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "online.json" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        write_record(record(path.parent.name, 1.0, 1.0), path)
    out = tmp_path / "joined.json"
    join(paths, out)
    assert {row.case for row in read_record(out).rows} >= {"a", "b"}
    with pytest.raises(ConfigError, match="is given twice; leave one out"):
        join([paths[0], paths[0]], out)


def test_what_is_done_of_a_run_that_is_cut_says_that_it_is_not_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second cell fails; a record of both says nothing of the kind."""
    path = tmp_path / "online.json"

    def run(
        _: object, cells: Sequence[str], __: object, ended: Callable[[str], None]
    ) -> list[object]:
        for cell in cells:
            if cell == "fails":
                raise RuntimeError(cell)
            ended(cell)
        return []

    monkeypatch.setattr(suite, "run_online", run)
    monkeypatch.setattr(online_rows, "rows_of", lambda cell: rows(cell, 1.0, 1.0))
    for cells, notes in ((("a", "fails"), ("unfinished: 1 of 2 cells",)), (("a", "b"), ())):
        monkeypatch.setattr(selection, "choose_cells", lambda *_, found=cells: found)
        with nullcontext() if not notes else pytest.raises(RuntimeError, match="fails"):
            bench_online.online(path, virtual=True)
        assert read_record(path).notes == notes


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_record(record("a", 1.0, 1.0), path)
    assert read_record(path) == record("a", 1.0, 1.0)
    path.write_text("{}")
    with pytest.raises(ConfigError, match="is no record of tandem bench"):
        read_record(path)
