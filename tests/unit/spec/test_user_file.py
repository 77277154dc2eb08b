"""Files that users name."""

import os
import stat
from pathlib import Path

import pytest

from tandem.spec.errors import ConfigError
from tandem.spec.user_file import parse_object, read_text, replace_text


def test_a_text_of_the_greatest_length_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1234", "utf-8")
    assert read_text(path, 4, "thing") == "1234"
    with pytest.raises(ConfigError, match="larger than any thing"):
        read_text(path, 3, "thing")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_text(tmp_path / "missing", 4, "thing")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="no text"):
        read_text(tmp_path / "bytes", 4, "thing")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "not JSON"), ("[1]", "no JSON object"), ("[" * 100_000, "nested too deeply")],
    ids=["cut", "list", "deep"],
)
def test_what_is_no_object_is_refused(text: str, reason: str) -> None:
    assert parse_object('{"a": [1]}') == {"a": [1]}
    with pytest.raises(ConfigError, match=reason):
        parse_object(text)


def test_a_file_is_replaced_whole_or_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before", "utf-8")
    with pytest.raises(UnicodeEncodeError):
        replace_text(path, "after \ud800")
    assert path.read_text("utf-8") == "before"
    replace_text(path, "after")
    assert path.read_text("utf-8") == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_who_may_read_a_file_stays_and_a_new_one_is_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "any").write_text("", "utf-8")
    path = tmp_path / "file"
    for mode in (stat.S_IMODE((tmp_path / "any").stat().st_mode), 0o640):
        replace_text(path, "text")
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.chmod(0o640)


def test_where_a_link_leads_is_written(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("file")
    replace_text(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text("utf-8") == "text"


def test_a_pipe_is_written_as_it_stands() -> None:
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as pipe:
        with open(writing, "wb"):
            replace_text(Path(f"/dev/fd/{writing}"), "text")
        assert pipe.read() == "text"
