"""`tandem bench papers`: the record, the summary and the pictures."""

import json
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tandem.bench.papers import record
from tandem.bench.papers.cells import PaperCell, Role, median_error
from tandem.bench.papers.figures import PAPERS
from tandem.bench.papers.plot import plot_cells
from tandem.bench.papers.record import CELLS, cells_of, print_cells, summaries
from tandem.cli.bench import bench_app
from tandem.spec.errors import ConfigError


def test_the_command_writes_every_cell_of_a_paper(tmp_path: Path) -> None:
    path, papers = tmp_path / "papers.json", ("park-egger", "kvpr")
    options = [word for paper in papers for word in ("--paper", paper)]
    result = CliRunner().invoke(bench_app(), ["papers", *options, "--json", str(path)])
    assert result.exit_code == 0
    written = json.loads(path.read_text())
    assert written["suite"] == "papers"
    assert len(written["cells"]) == len(cells_of(papers, lambda _: None))
    assert {cell["paper"] for cell in written["cells"]} == set(papers)
    scored = [cell for cell in written["cells"] if cell["role"] == "scored"]
    assert all(cell["predicted"] is not None for cell in scored)
    assert "tables 3, 4" in result.output


def test_each_part_of_a_paper_is_told_before_it_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    def part(number: int) -> Iterator[PaperCell]:
        assert len(told) == number
        yield PaperCell("apex", "table 1", str(number), "s", 1.0, 1.0)

    parts = tuple(partial(part, number) for number in (1, 2, 3))
    assert len(CELLS["apex"]) == len(parts)
    monkeypatch.setattr(record, "CELLS", {"kvpr": (), "apex": parts})
    assert [cell.cell for cell in cells_of(["apex"], told.append)] == ["1", "2", "3"]
    assert [line.partition(",")[0] for line in told] == [
        "apex: its cost model",
        "apex: its own policy in virtual time",
        "apex: what the planner says",
    ]


def test_in_a_file_a_cell_is_a_line() -> None:
    cells = [
        PaperCell("p", "table 1", "a [cell] " * 20, "s", 2.0, 1.0, note="long " * 40),
        PaperCell("p", "table 1", "b", "s", None, 1.0),
    ]
    file = StringIO()
    print_cells(cells, Console(file=file, width=80))
    paper, heading, *lines = file.getvalue().splitlines()
    assert (paper, heading.split()[:3]) == ("p", ["where", "cell", "predictor"])
    assert lines[0].startswith("table 1  a [cell] a [cell]")
    assert lines[0].endswith("long long")
    assert lines[1].startswith("table 1  b ")
    assert lines[0].index("model") == lines[1].index("model")
    terminal = StringIO()
    print_cells(cells, Console(file=terminal, width=80, force_terminal=True))
    assert "┃" in terminal.getvalue()


def test_all_papers_are_compared_and_no_other() -> None:
    assert tuple(CELLS) == PAPERS
    with pytest.raises(ConfigError, match=r"no paper 'vllm'; use one of: park-egger, kvpr, "):
        cells_of(["vllm"], lambda _: None)


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_what_cannot_be_written_is_refused_before_anything_is_printed(option: str) -> None:
    result = CliRunner().invoke(bench_app(), ["papers", option, "/nonexistent/there"])
    assert isinstance(result.exception, ConfigError)
    assert result.output == ""


def test_pictures_are_drawn_per_paper(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    cells = [PaperCell("one", "table 1", "a", "s", 2.0, 1.0), PaperCell("two", "f", "b", "s", 1, 1)]
    files = plot_cells(cells, tmp_path)
    assert [file.name for file in files] == ["one.png", "two.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_summaries_count_scored_cells_only() -> None:
    cells = [
        PaperCell("p", "t", "a", "s", 1.1, 1.0),
        PaperCell("p", "t", "b", "s", 0.7, 1.0),
        PaperCell("p", "t", "c", "s", 9.0, 1.0, Role.LISTED),
        PaperCell("p", "t", "d", "s", 9.0, 1.0, Role.CALIBRATED),
        PaperCell("p", "t", "e", "s", None, 1.0),
    ]
    assert summaries(cells) == ["t, model: median error 20.0%, largest 30.0%, 2 cells"]
    assert median_error(cells[:2]) == pytest.approx(0.2)
