"""NEO's and APEX's choices, on a view of two rows on the accelerator and two on the host."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.support.engines import TestEngine
from tests.support.step_prices import round_prices
from tests.unit.scheduler.priced_view import LAYERS, half_on_host

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.apex import Apex, ApexAsPublished
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.neo import Neo, NeoAsPublished


@pytest.fixture(scope="module")
def engine() -> Iterator[TestEngine]:
    """Nothing of it changes: strategies only look."""
    with half_on_host() as engine:
        yield engine


def proposed(engine: TestEngine, strategy: Strategy, prices: StepPrices | None) -> StepProposal:
    proposal = strategy.propose(engine.scheduler.view(), prices)
    assert proposal.computes
    return proposal


def hosted(engine: TestEngine, rows: np.ndarray) -> int:
    return int((engine.scheduler.rows.num_host_blocks[rows] > 0).sum())


def key_s(engine: TestEngine, share: float) -> float:
    """A key's time at which a row's attention on the host takes that share of a second."""
    rows = engine.scheduler.rows
    return share / (int(rows.submitted[rows.owned()].max()) + 1)


def neo_prices(engine: TestEngine, hosted_s: float) -> StepPrices:
    """Linear stages of 0.1 s and attention of 1 s on the accelerator; of a row on the host so much.

    A second pass through the linear stages thus costs little.
    """
    return round_prices(
        LAYERS,
        layer_s=0.1,
        device_key_s=key_s(engine, 0.5),
        host_key_s=key_s(engine, hosted_s),
    )


def test_neo_fills_batch_1_first_as_long_as_batch_0_hides_it(engine: TestEngine) -> None:
    proposal = proposed(engine, Neo(), neo_prices(engine, 0.04))
    started = np.concatenate(proposal.cohort_starts)
    assert hosted(engine, started) == len(started) == 1  # of two, as many as a cohort may have
    assert hosted(engine, proposal.decode) == 0
    assert proposal.interposed_passes == LAYERS


def test_neo_takes_the_accelerator_alone_where_the_pipeline_is_no_faster(
    engine: TestEngine,
) -> None:
    # twice the rows in twice the time: the linear stages of a pass cost as much as those of all
    proposal = proposed(engine, Neo(), round_prices(LAYERS, host_key_s=key_s(engine, 0.4)))
    assert not proposal.cohort_starts
    assert hosted(engine, proposal.decode) == 0


def test_neo_lets_those_ride_that_only_batch_0_s_attention_hides(engine: TestEngine) -> None:
    # one row's attention fills the window of the linear stages, two would not fit
    proposal = proposed(engine, Neo(), neo_prices(engine, 0.08))
    assert len(np.concatenate(proposal.cohort_starts)) == 1
    assert hosted(engine, proposal.decode) == 1


def test_neo_leaves_the_accelerator_alone_where_nothing_hides_the_host(
    engine: TestEngine,
) -> None:
    proposal = proposed(engine, Neo(), neo_prices(engine, 3.0))
    assert not proposal.cohort_starts
    assert (len(proposal.decode), hosted(engine, proposal.decode)) == (2, 0)


def test_nobody_waits_for_ever_under_neo(engine: TestEngine) -> None:
    prices = round_prices(LAYERS, host_key_s=1e3)
    view = engine.scheduler.view()
    late = view._replace(next_step=view.next_step + 2 * 4 * LAYERS + 2)
    assert hosted(engine, Neo().propose(late, prices).decode) == 2


def test_under_neo_only_who_has_waited_for_long_rides(engine: TestEngine) -> None:
    prices = round_prices(LAYERS, host_key_s=1e3)
    view = engine.scheduler.view()
    rows = view.rows.read_only()
    waited = view.runnable.decodes[rows.num_host_blocks[view.runnable.decodes] > 0][:1]
    rows.last_step = rows.last_step + 2 * 4 * LAYERS + 2
    rows.last_step[waited] = view.next_step - 2
    late = view._replace(rows=rows, next_step=view.next_step + 2 * 4 * LAYERS + 2)
    chosen = Neo().propose(late, prices).decode
    assert chosen[rows.num_host_blocks[chosen] > 0].tolist() == waited.tolist()
    assert len(chosen) == 3


@pytest.mark.parametrize(("host_over_device", "passes"), [(2.0, LAYERS), (100.0, 0)])
def test_apex_pipelines_where_inequality_5_holds(
    engine: TestEngine, host_over_device: float, passes: int
) -> None:
    # Ta = Tl: the threshold of N_G / N_C is 6
    device_key_s = key_s(engine, 0.5)
    prices = round_prices(
        LAYERS, device_key_s=device_key_s, host_key_s=host_over_device * device_key_s
    )
    proposal = proposed(engine, Apex(), prices)
    assert len(np.concatenate(proposal.cohort_starts)) == 1
    assert hosted(engine, proposal.decode) == 0
    assert proposal.interposed_passes == passes


def test_without_prices_neo_rides_and_apex_overlaps(engine: TestEngine) -> None:
    assert hosted(engine, proposed(engine, Neo(), None).decode) == 2
    overlapping = proposed(engine, Apex(), None)
    assert overlapping.cohort_starts
    assert overlapping.interposed_passes == 0


# --- as published ---------------------------------------------------------------------------------


def launching(layer_s: float, hosted_s: float, engine: TestEngine) -> StepPrices:
    """Linear stages of so long and as much attention on the accelerator; a row's on the host."""
    return round_prices(
        LAYERS,
        layer_s=layer_s,
        device_key_s=key_s(engine, 5 * layer_s),
        host_key_s=key_s(engine, hosted_s),
    )


@pytest.mark.parametrize(("layer_s", "published"), [(0.1, True), (1e-5, False)])
def test_neo_as_published_takes_launching_to_last_0_8_ms_on_any_machine(
    engine: TestEngine, layer_s: float, published: bool
) -> None:
    """On a fast accelerator that outweighs what one row more brings."""
    prices, view = launching(layer_s, 0.4 * layer_s, engine), engine.scheduler.view()
    decodes = view.runnable.decodes
    first = decodes[view.rows.num_host_blocks[decodes] > 0][0]
    fewer = view._replace(runnable=view.runnable._replace(decodes=decodes[decodes != first]))
    assert Neo().propose(fewer, prices).cohort_starts
    assert bool(NeoAsPublished().propose(fewer, prices).cohort_starts) == published


def test_neo_as_published_keeps_no_bound(engine: TestEngine) -> None:
    prices, view = neo_prices(engine, 0.04), engine.scheduler.view()
    bounded = view._replace(config=replace(view.config, tpot_bound_s=LAYERS * 1.15))
    assert not Neo().propose(bounded, prices).cohort_starts
    assert NeoAsPublished().propose(bounded, prices).cohort_starts


def test_apex_as_published_starts_no_cohort_of_few_but_for_who_has_waited_for_long(
    engine: TestEngine,
) -> None:
    prices, view = neo_prices(engine, 0.04), engine.scheduler.view()
    assert proposed(engine, Apex(), prices).cohort_starts  # two rows on either side
    few = proposed(engine, ApexAsPublished(), prices)
    assert not few.cohort_starts
    assert len(few.decode) == 2
    late = view._replace(next_step=view.next_step + 2 * 4 * LAYERS + 2)
    assert ApexAsPublished().propose(late, prices).cohort_starts
