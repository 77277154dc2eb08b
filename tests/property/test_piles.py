from hypothesis import given
from hypothesis import strategies as st

from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.search.pile import Pile

Added = tuple[float, float | None]
"""Tokens per second that one promises before it is looked at, and after; None: it is out."""

per_s = st.floats(1.0, 100.0)
added = st.tuples(per_s, st.one_of(st.none(), st.floats(0.5, 1.0))).map(
    lambda both: (both[0], None if both[1] is None else both[0] * both[1])
)


@given(st.lists(added, max_size=12), per_s, st.integers(0, 3))
def test_a_pile_reaches_what_the_best_of_it_does_after_a_look(
    every: list[Added], least: float, taken: int
) -> None:
    looked: list[int] = []

    def first(candidate: Candidate, lends: bool) -> tuple[Candidate, float] | None:
        looked.append(candidate.device_rows)
        seen = every[candidate.device_rows - 1][1]
        return None if seen is None else (candidate, seen)

    pile = Pile(first, (), 0.0)
    for number, (most_per_s, _) in enumerate(every):
        pile.add(candidate_of("gpu-only", Elsewhere(), number + 1, 0), most_per_s, lends=False)
    for _ in range(taken):
        pile.take()
    seen = [per_s for _, per_s in every if per_s is not None]
    assert pile.reaches(least) == (max(seen) >= least if seen else None)
    assert len(looked) == len(set(looked))
