from hypothesis import given
from hypothesis import strategies as st

from tandem.memory.growth_reserve import growth_reserve, with_growth_reserve


@given(st.integers(1, 500), st.integers(1, 5000))
def test_the_last_request_finds_room_and_reserve_while_all_others_hold_the_most(
    requests: int, longest: int
) -> None:
    held = requests * longest
    pool = with_growth_reserve(requests, held)
    others = (requests - 1) * longest
    assert growth_reserve(requests - 1, pool) == pool - held
    assert pool - others - growth_reserve(requests - 1, pool) >= longest
