"""Two halves that take turns, on a view of two rows on the accelerator and two on the host."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.unit.scheduler.priced_view import LAYERS, SETUP, half_on_host
from tests.unit.scheduler.test_auto import asked

from tandem.scheduler.strategies.symmetric import Symmetric


@pytest.fixture
def engine() -> Iterator[TestEngine]:
    with half_on_host() as engine:
        yield engine


@pytest.mark.parametrize(("cohorts", "rows", "sizes"), [(2, 9, [1, 1]), (1, 9, [2]), (1, 1, [1])])
def test_rows_on_the_host_are_halved_as_far_as_cohorts_allow(
    engine: TestEngine, cohorts: int, rows: int, sizes: list[int]
) -> None:
    view = engine.scheduler.view()
    config = replace(view.config, max_cohorts=cohorts, max_cohort_rows=rows)
    proposal = Symmetric().propose(view._replace(config=config), None)
    assert [len(members) for members in proposal.cohort_starts] == sizes
    assert len(proposal.decode) == 2  # those on the accelerator go on beside them
    assert (proposal.interposed_passes, proposal.starts_ahead) == (LAYERS, True)


def test_nobody_starts_while_a_half_is_under_way() -> None:
    """Rows that come meanwhile wait for the next token's halves."""
    setup = replace(SETUP, strategy="symmetric", max_host_seqs=6, max_cohort_rows=4)
    with toy_engine(setup, LAYERS) as engine:
        for number in range(4):
            engine.core.add_request(asked(str(number), 30))
        scheduler, seen = engine.scheduler, list[tuple[int, ...]]()
        while engine.core.has_work():
            if len(seen) == 10:
                engine.core.add_request(asked("late", 10))
            engine.core.step()
            sizes = tuple(sorted(len(cohort.rows.rows) for cohort in scheduler.cohorts.values()))
            seen.append(sizes)
            if sizes:
                assert not Symmetric().propose(scheduler.view(), None).cohort_starts
    assert {sizes for sizes in seen if sizes} <= {(1,), (1, 1), (1, 2), (2,)}
    assert (1, 1) in seen
    assert (1, 2) in seen
