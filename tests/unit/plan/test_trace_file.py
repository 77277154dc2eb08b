"""Traces: complete, cut off, too large, on a full disk, and where nothing can be written."""

import json
from pathlib import Path
from typing import Any

import pytest

from tandem.plan.trace_file import TraceFile, fields
from tandem.spec.errors import ConfigError

SPANS = 50


class Traced:
    """A trace, and what it said about its end."""

    def __init__(self, path: Path, limit_bytes: int | None = None) -> None:
        self.path = path
        self.said: list[str] = []
        self.file = TraceFile(
            path,
            "test",
            ("first", "second"),
            limit_bytes=limit_bytes,
            origin_s=100.0,
            ended_early=self.said.append,
            param="trace",
        )

    def fill(self) -> None:
        for number in range(SPANS):
            start_s = 100.0 + number
            self.file.span(
                number % 2, f"op {number}", start_s, start_s + 0.5, fields({"step": number})
            )
            self.file.flush()

    def events(self) -> list[dict[str, Any]]:
        return json.loads(self.path.read_text("ascii"))

    def unfinished(self) -> list[dict[str, Any]]:
        return json.loads(self.path.read_text("ascii") + "]")


def test_spans_and_counters_are_read_back(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json")
    traced.fill()
    traced.file.counter("share", 101.0, 0.25)
    traced.file.close()
    events = traced.events()
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == ["first", "second"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [span["args"]["step"] for span in spans] == list(range(SPANS))
    assert (spans[3]["ts"], spans[3]["dur"], spans[3]["tid"]) == (3e6, 5e5, 1)
    (counter,) = [event for event in events if event["ph"] == "C"]
    assert (counter["ts"], list(counter["args"].values())) == (1e6, [0.25])


def test_what_was_flushed_is_readable_without_an_end(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json")
    assert len(traced.unfinished()) == 5
    traced.fill()
    assert sum(event["ph"] == "X" for event in traced.unfinished()) == SPANS


def test_nothing_is_held_without_bound(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json")
    for number in range(10_000):
        traced.file.span(0, "op", number, number + 1)
    assert sum(event["ph"] == "X" for event in traced.unfinished()) > 5_000


def test_a_limit_is_kept_and_told_once(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "t.json", limit_bytes=2048)
    traced.fill()
    traced.file.close()
    traced.file.close()
    events = traced.events()
    assert 2 < sum(event["ph"] == "X" for event in events) < SPANS
    assert events[-1]["name"] == "limit of 2.0 KiB"
    assert (tmp_path / "t.json").stat().st_size < 2048 + 200
    assert traced.said == [f"{tmp_path / 't.json'} has reached 2.0 KiB; what follows is not in it"]


def test_a_full_disk_ends_the_trace_and_not_what_is_traced() -> None:
    traced = Traced(Path("/dev/full"))
    traced.fill()
    traced.file.close()
    assert traced.said == ["/dev/full cannot be written on (No space left on device)"]


@pytest.mark.parametrize("path", ["/none/t.json", "/"])
def test_a_bad_path_is_one_line(path: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot write {path}: .*; name another file") as caught:
        Traced(Path(path))
    assert caught.value.param == "trace"
