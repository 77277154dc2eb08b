"""Loads and copies share a link: together they take as long as all their bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.runtime.paced.shared_link import SharedLink


def test_a_load_alone_takes_its_time() -> None:
    link = SharedLink()
    assert link.load_s(1.0, 2.0) == 2.0
    link.copy(3.5, 4.0)
    assert link.load_s(4.0, 2.0) == 2.0


def test_copies_within_lengthen_it_and_late_ones_the_next() -> None:
    link = SharedLink()
    link.copy(0.5, 1.0)
    assert link.load_s(0.0, 1.0) == pytest.approx(1.5)
    link.copy(1.2, 1.4)
    assert link.load_s(1.5, 1.0) == pytest.approx(1.2)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1), st.booleans()), min_size=1, max_size=40)
)
def test_the_link_is_never_busier_than_time_passes(steps: list[tuple[float, float, bool]]) -> None:
    """But for what the last load owes, if a copy became known after it."""
    link = SharedLink()
    ends = {"copy": 0.0, "load": 0.0}
    intervals: dict[str, list[tuple[float, float]]] = {"copy": [], "load": []}
    alone = 0.0
    for gap, size, is_copy in steps:
        name = "copy" if is_copy else "load"
        start = ends[name] + gap
        if is_copy:
            link.copy(start, start + size)
            end = start + size
        else:
            end = start + link.load_s(start, size)
            alone += size
        ends[name] = end
        intervals[name].append((start, end))
    overlap = sum(
        max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
        for a in intervals["copy"]
        for b in intervals["load"]
    )
    stretched = sum(b - a for a, b in intervals["load"]) - alone
    owed = overlap - stretched
    last = intervals["load"][-1] if intervals["load"] else (0.0, 0.0)
    late = sum(max(0.0, min(b, last[1]) - max(a, last[0])) for a, b in intervals["copy"])
    assert stretched >= -1e-9
    assert owed <= late + 1e-6 or stretched >= overlap - 1e-6
