"""Records: the format on disk, fractions of bounds, and the table."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tandem.bench.records import (
    BenchRecord,
    BenchRow,
    check_writable,
    row_of_samples,
    write_record,
)
from tandem.bench.table import print_record
from tandem.spec.errors import ConfigError

ROWS = (
    BenchRow("decode", "tandem", "throughput", 30.0, "tokens/s", 40.0, (25.0, 31.0)),
    BenchRow("decode", "transformers", "throughput", 20.0, "tokens/s", 40.0, (19.0, 21.0)),
    BenchRow("start", "tandem", "time", 0.25, "s", spread=(0.25, 0.25)),
)
RECORD = BenchRecord("engine", "tandem bench engine", {"cpu": "A Processor", "threads": 2}, ROWS)


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(RECORD, path)
    assert BenchRecord.from_json(path.read_text("utf-8")) == RECORD


def test_rows_have_exactly_the_fields_of_the_format() -> None:
    rows = json.loads(RECORD.to_json())["rows"]
    assert rows[0] == {
        "case": "decode",
        "variant": "tandem",
        "metric": "throughput",
        "value": 30.0,
        "unit": "tokens/s",
        "bound": 40.0,
        "fraction": 0.75,
        "spread": [25.0, 31.0],
    }
    assert rows[2]["bound"] is None
    assert rows[2]["fraction"] is None


def test_a_single_sample_is_its_own_spread() -> None:
    assert BenchRow("a", "b", "c", 2.0, "s").as_json()["spread"] == [2.0, 2.0]


def test_samples_give_their_median_and_spread() -> None:
    row = row_of_samples("a", "b", "c", [3.0, 1.0, 10.0], "s", 6.0)
    assert (row.value, row.spread, row.fraction) == (3.0, (1.0, 10.0), 0.5)


def test_what_is_not_a_number_is_refused() -> None:
    record = BenchRecord("engine", "", {}, (BenchRow("a", "b", "c", float("nan"), "s"),))
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.to_json()


def test_the_table_has_the_fraction_before_the_figure() -> None:
    output = io.StringIO()
    print_record(RECORD, Console(file=output, width=120))
    text = output.getvalue()
    assert "A Processor" in text
    ours, theirs, start = (
        line for line in text.splitlines() if "tandem" in line or "trans" in line
    )
    assert (
        ours.index("0.75") < ours.index("30 tokens/s") < ours.index("25 .. 31") < ours.index("40 │")
    )
    assert "0.50" in theirs
    assert "0.25 s" in start


@pytest.mark.parametrize("place", ["missing/record.json", "."])
def test_a_bad_path_is_found_before_the_run(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        check_writable(tmp_path / place)


def test_looking_at_a_path_creates_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "record.json")
    assert list(tmp_path.iterdir()) == []
