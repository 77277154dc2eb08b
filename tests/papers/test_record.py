"""`tandem bench papers`: the record, the summary and the pictures."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.bench.papers.cells import PaperCell, Role, median_error
from tandem.bench.papers.figures import PAPERS
from tandem.bench.papers.plot import plot_cells
from tandem.bench.papers.record import CELLS, cells_of, summaries
from tandem.cli.bench import bench_app
from tandem.spec.errors import ConfigError


def test_the_command_writes_every_cell_of_a_paper(tmp_path: Path) -> None:
    path, papers = tmp_path / "papers.json", ("park-egger", "kvpr")
    options = [word for paper in papers for word in ("--paper", paper)]
    result = CliRunner().invoke(bench_app(), ["papers", *options, "--json", str(path)])
    assert result.exit_code == 0
    record = json.loads(path.read_text())
    assert record["suite"] == "papers"
    assert len(record["cells"]) == len(cells_of(papers, lambda _: None))
    assert {cell["paper"] for cell in record["cells"]} == set(papers)
    scored = [cell for cell in record["cells"] if cell["role"] == "scored"]
    assert all(cell["predicted"] is not None for cell in scored)
    assert "tables 3, 4" in result.output


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
