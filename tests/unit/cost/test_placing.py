"""NEO's placing ends early only where nobody else finds a place."""

from hypothesis import given
from hypothesis import strategies as st

from tandem.cost.neo.placing import Draft, place_host_rows


def linear_s(tokens: int) -> float:
    """Tiles of four rows."""
    return -(-tokens // 4) * 1.0


def one_by_one(draft: Draft, times_s: list[float]) -> tuple[int | None, ...]:
    """Step 4 as it is written: every row is tried, by the inequalities of the whole draft."""
    batches: list[int | None] = []
    for time_s in times_s:
        second = draft._replace(
            second_tokens=draft.second_tokens + 1, second_host_s=draft.second_host_s + time_s
        )
        first = draft._replace(
            first_tokens=draft.first_tokens + 1, first_host_s=draft.first_host_s + time_s
        )
        if second.layer(linear_s).hides_host:
            draft, batch = second, 1
        elif first.layer(linear_s).hides_host:
            draft, batch = first, 0
        else:
            batch = None
        batches.append(batch)
    return tuple(batches)


@given(
    st.integers(0, 12), st.sampled_from((0.0, 0.5, 2.0)),
    st.lists(st.sampled_from((0.25, 0.5, 1.0, 3.0, 8.0)), max_size=24),
)  # fmt: skip
def test_as_if_every_row_were_tried(tokens: int, attention_s: float, times_s: list[float]) -> None:
    draft = Draft(first_tokens=tokens, accelerator_attention_s=attention_s)
    placing = place_host_rows(draft, times_s, linear_s)
    assert placing.batches == one_by_one(draft, times_s)


def test_a_short_row_behind_long_ones_finds_its_place() -> None:
    draft = Draft(first_tokens=4)
    assert place_host_rows(draft, [8.0, 8.0, 8.0, 0.5, 8.0], linear_s).batches[3] == 1
