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
def test_loads_take_their_own_time_and_that_of_every_copy_they_overlap(
    steps: list[tuple[float, float, bool]],
) -> None:
    """Of those, too, that became known afterwards: the next load, here a last one, makes up."""
    link = SharedLink()
    copies: list[tuple[float, float]] = []
    loads: list[tuple[float, float]] = []
    alone = 0.0
    for gap, size, is_copy in [*steps, (1e3, 1.0, False)]:
        if is_copy:
            start = (copies[-1][1] if copies else 0.0) + gap
            link.copy(start, start + size)
            copies.append((start, start + size))
            continue
        start = (loads[-1][1] if loads else 0.0) + gap
        loads.append((start, start + link.load_s(start, size)))
        alone += size
    overlap = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in copies for b in loads)
    assert sum(end - start for start, end in loads) == pytest.approx(alone + overlap)
