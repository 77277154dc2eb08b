"""Work that link and CPU share, against all ways to share it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.planner.offline.levelled import INFINITY, Levelled, least_levelled_s

SECONDS = st.floats(0.0, 10.0)
STEPS = 40


def by_trying(work: list[Levelled]) -> float:
    """Of all shares in steps, the least time in which both are done."""
    best = INFINITY
    for shares in product(range(STEPS + 1), repeat=len(work)):
        link_s = sum(n / STEPS * each.link_s for n, each in zip(shares, work, strict=True))
        cpu_s = sum((1 - n / STEPS) * each.cpu_s for n, each in zip(shares, work, strict=True))
        best = min(best, max(link_s, cpu_s))
    return best


@given(st.lists(st.builds(Levelled, SECONDS, SECONDS), min_size=1, max_size=2))
def test_no_way_to_share_takes_less_and_one_takes_as_long(work: list[Levelled]) -> None:
    least_s, tried_s = least_levelled_s(work), by_trying(work)
    assert least_s <= tried_s * (1 + 1e-9)
    step_s = sum(each.link_s + each.cpu_s for each in work) / STEPS
    assert tried_s <= least_s + step_s + 1e-9


@pytest.mark.parametrize(
    ("work", "least_s"),
    [
        ([Levelled(4.0, 4.0)], 2.0),
        ([Levelled(3.0, INFINITY)], 3.0),
        ([Levelled(INFINITY, 3.0), Levelled(1.0, 1.0)], 3.0),
        ([Levelled(INFINITY, 3.0), Levelled(8.0, 8.0)], 5.5),
        ([Levelled(INFINITY, INFINITY)], INFINITY),
        ([Levelled(0.0, 0.0)], 0.0),
    ],
)
def test_what_one_of_them_may_not_do_is_the_other_s(work: list[Levelled], least_s: float) -> None:
    assert least_levelled_s(work) == pytest.approx(least_s)
