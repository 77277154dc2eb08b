import io

from hypothesis import given
from hypothesis import strategies as st

from tandem.jobs.lines import Line, read_lines


def lines_of(data: bytes, max_line_bytes: int = 100) -> list[Line]:
    return list(read_lines(io.BytesIO(data), max_line_bytes))


def test_ends_blanks_and_marks() -> None:
    data = b"\xef\xbb\xbfone\r\n\n  \t\ntwo \n\xef\xbb\xbfthree"
    found = [(line.start.number, line.data, line.is_whole) for line in lines_of(data)]
    assert found == [(1, b"one", True), (4, b"two", True), (5, b"\xef\xbb\xbfthree", False)]


def test_an_empty_file() -> None:
    assert lines_of(b"") == []
    assert lines_of(b"\n\r\n") == []


def test_a_long_line_is_passed_over_without_being_held() -> None:
    """The reader asks for pieces of a bounded size."""
    asked: list[int] = []

    class Counted(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            asked.append(size or 0)
            return super().readline(size)

    data = b"a\n" + b"x" * 3_000_000 + b"\nb\n"
    found = list(read_lines(Counted(data), 10))
    assert [line.data for line in found] == [b"a", None, b"b"]
    assert found[2].start.offset == len(data) - 2
    assert max(asked) <= 1 << 20


def test_the_bound_counts_the_end_of_the_line() -> None:
    assert [line.data for line in lines_of(b"123\n1234\n123", 4)] == [b"123", None, b"123"]
    assert [line.data for line in lines_of(b"1234", 4)] == [b"1234"]
    assert [line.data for line in lines_of(b"12345", 4)] == [None]


@given(
    st.lists(st.sampled_from([b"", b"a", b"bc", b"longer than it may be", b"\xff", b" "])),
    st.booleans(),
)
def test_reading_may_begin_at_any_line(pieces: list[bytes], ends: bool) -> None:
    data = b"\n".join(pieces) + (b"\n" if ends else b"")
    every = lines_of(data, 8)
    for index, line in enumerate(every):
        file = io.BytesIO(data)
        file.seek(line.start.offset)
        assert list(read_lines(file, 8, line.start)) == every[index:]
        file.seek(line.end.offset)
        assert list(read_lines(file, 8, line.end)) == every[index + 1 :]
