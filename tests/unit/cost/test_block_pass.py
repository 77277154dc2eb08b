"""A block's passes by their terms: the best shares, and terms corrected by what was measured."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.cost.block_calibration import BlockFactors, MeasuredPass, corrected, factors_of
from tandem.cost.block_pass import PassWork, best_streamed, longest_s, pass_s, pass_terms
from tandem.plan.share_terms import ShareTerms, TermLine
from tandem.spec.errors import ConfigError

ROWS = 20
TERMS = ShareTerms(
    most_streamed_rows=ROWS,
    stages_s=0.02,
    weights_s=0.03,
    way_s=0.005,
    slack=1.1,
    attention=TermLine(1e-4, 1e-6, 1e-7),
    cache=TermLine(1e-4, 1e-5, 4e-6),
    queries=TermLine(1e-4, 2e-6, 0.0),
    results=TermLine(1e-4, 2e-6, 0.0),
    host=TermLine(1e-4, 2e-6, 8e-6),
    memory=TermLine(0.01, 0.0, 1e-6),
    reads_s=0.025,
    mlps=TermLine(0.002, 5e-5),
    returns_s=1e-4,
)
WORKS = st.builds(
    lambda batches, rows, tokens, share: PassWork(
        batches, rows, tokens * rows, rows * batches, tokens * rows
    ).shared(share),
    st.integers(1, 8),
    st.integers(1, 200),
    st.integers(1, 3000),
    st.floats(0.05, 0.95),
)


@given(WORKS)
def test_the_best_share_is_that_of_all_that_there_are(work: PassWork) -> None:
    streamed, took_s = best_streamed(TERMS, work, ROWS)
    each = [pass_s(TERMS, work.shared(n / ROWS)) for n in range(ROWS + 1)]
    assert took_s == min(each) == each[streamed]


def test_slots_bound_what_is_streamed() -> None:
    work = PassWork(2, cpu_rows=40, cpu_tokens=40_000)
    assert best_streamed(TERMS, work, ROWS)[0] > 3
    few = replace(TERMS, most_streamed_rows=3)
    assert best_streamed(few, work, ROWS)[0] == 3


def test_shares_move_to_the_link_as_kv_outgrows_the_weights() -> None:
    """Weights take their part of the link whatever is streamed beside them."""
    shares = [
        best_streamed(TERMS, PassWork(2, cpu_rows=40, cpu_tokens=40 * tokens), ROWS)[0]
        for tokens in (50, 200, 800, 3200)
    ]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


@given(
    st.lists(WORKS, min_size=1, max_size=8),
    st.tuples(*[st.floats(0.2, 5.0)] * 6),
    st.floats(1.0, 2.0),
)
def test_terms_that_are_off_by_factors_are_found(
    works: list[PassWork], off: tuple[float, ...], slack: float
) -> None:
    truth = corrected(TERMS, BlockFactors(*off), [])
    passes = [
        MeasuredPass(work, pass_terms(truth, work), slack * longest_s(truth, work))
        for work in works
    ]
    found = factors_of(TERMS, passes, BlockFactors())
    assert (
        found.stages, found.attention, found.link, found.host, found.disk, found.mlps
    ) == pytest.approx(off)  # fmt: skip
    again = corrected(TERMS, found, passes)
    assert again.slack == pytest.approx(slack)
    for each in passes:
        assert pass_s(again, each.work) == pytest.approx(each.wall_s)


def test_what_a_window_does_not_use_keeps_its_factor() -> None:
    before = BlockFactors(host=3.0, link=2.0)
    work = PassWork(1, resident_rows=4, resident_tokens=400)
    unmeasured = pass_terms(replace(TERMS, weights_s=0.0), work)
    found = factors_of(TERMS, [MeasuredPass(work, unmeasured, 1.0)], before)
    assert (found.host, found.link) == (3.0, 2.0)


def test_weights_tell_what_the_link_takes_where_no_kv_does() -> None:
    work = PassWork(1, cpu_rows=4, cpu_tokens=400)
    busy = pass_terms(TERMS, work)
    slow = busy._replace(weights_s=2 * busy.weights_s)
    assert factors_of(TERMS, [MeasuredPass(work, slow, 1.0)], BlockFactors()).link == 2.0


def test_a_pass_is_no_shorter_than_its_reads_from_disk() -> None:
    work = PassWork(1, resident_rows=4, resident_tokens=400)
    assert longest_s(replace(TERMS, reads_s=1.5), work) == 1.5
    slow = pass_terms(replace(TERMS, reads_s=3 * TERMS.reads_s), work)
    found = factors_of(TERMS, [MeasuredPass(work, slow, 1.0)], BlockFactors())
    assert found.disk == pytest.approx(3.0)
    assert str(found).endswith("disk 3.00")


def test_mlps_on_the_cpu_take_its_time_from_attention() -> None:
    """So more KV crosses the link; and a pass is no shorter than they."""
    work = PassWork(2, cpu_rows=40, cpu_tokens=40 * 800)
    streamed = [
        best_streamed(replace(TERMS, mlps=TermLine(each)), work, ROWS)[0]
        for each in (0.0, 0.04, 0.08)
    ]
    assert streamed == sorted(streamed)
    assert streamed[0] < streamed[-1]
    alone = PassWork(1, resident_rows=4, resident_tokens=400)
    with_mlps = replace(TERMS, mlps=TermLine(1.5))
    assert longest_s(with_mlps, alone) == TERMS.way_s + 1.5
    slow = pass_terms(replace(with_mlps, mlps=TermLine(3.0)), alone)
    found = factors_of(with_mlps, [MeasuredPass(alone, slow, 3.0)], BlockFactors())
    assert found.mlps == 2.0
    of_each = pass_terms(replace(TERMS, mlps=TermLine(0.5, 0.25)), PassWork(2, 1, 9, 2, 9, 3, 9))
    assert of_each.mlps_s == 0.5 + 6 * 0.25
    assert str(found).endswith("MLPs on the CPU 2.00")


@pytest.mark.parametrize(
    "change",
    [
        {"stages_s": -1.0},
        {"slack": 0.0},
        {"weights_s": float("nan")},
        {"most_streamed_rows": -1},
        {"reads_s": -1.0},
        {"returns_s": float("inf")},
    ],
)
def test_terms_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        replace(TERMS, **change)
