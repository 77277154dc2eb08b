"""NEO's and APEX's choices where all rows that decode lie on the host, beside a prompt."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.support.step_prices import round_prices
from tests.unit.scheduler.priced_view import LAYERS, PROMPT, SETUP

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.apex import Apex, ApexAsPublished
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.neo import Neo, NeoAsPublished
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

ON_HOST = 3


@pytest.fixture(scope="module")
def engine() -> Iterator[TestEngine]:
    """Three decode on the host, and a fourth waits; nothing changes: strategies only look."""
    setup = replace(
        SETUP,
        device_blocks=1,
        max_device_seqs=0,
        max_host_seqs=ON_HOST + 1,
        max_cohort_rows=ON_HOST,
    )
    with toy_engine(setup, LAYERS) as engine:
        for number in range(ON_HOST):
            add(engine, number)
        rows = engine.scheduler.rows
        while len(owned := rows.owned()) < ON_HOST or not (rows.known[owned] > PROMPT).all():
            engine.core.step()
        add(engine, ON_HOST)
        yield engine


def add(engine: TestEngine, number: int) -> None:
    params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
    engine.core.add_request(EngineRequest(str(number), (1,) * PROMPT, params))


def proposed(
    engine: TestEngine, strategy: Strategy, prices: StepPrices, bound_s: float | None = None
) -> StepProposal:
    view = engine.scheduler.view()
    bounded = view._replace(config=replace(view.config, tpot_bound_s=bound_s))
    proposal = strategy.propose(bounded, prices)
    assert proposal.admissions  # the prompt is read whatever becomes of the others
    return proposal


def prices_of(host_key_s: float) -> StepPrices:
    """A layer takes a second for any of these rows, and a key on the host so much."""
    return round_prices(LAYERS, host_key_s=host_key_s)


@pytest.mark.parametrize("strategy", [Neo(), Apex()])
def test_all_are_one_batch_where_a_second_one_would_read_weights_twice(
    engine: TestEngine, strategy: Strategy
) -> None:
    proposal = proposed(engine, strategy, prices_of(1e-4))
    assert (len(proposal.decode), proposal.cohort_starts) == (ON_HOST, ())


@pytest.mark.parametrize("strategy", [NeoAsPublished(), ApexAsPublished()])
def test_not_as_published(engine: TestEngine, strategy: Strategy) -> None:
    assert len(proposed(engine, strategy, prices_of(1e-4)).decode) == 0


@pytest.mark.parametrize("strategy", [Neo(), Apex()])
def test_two_are_where_linear_stages_take_no_longer_for_it_and_hide_attention(
    engine: TestEngine, strategy: Strategy
) -> None:
    """A second for each token's in each layer, and one for the attention of all others."""
    keys = ON_HOST * (PROMPT + 1)
    prices = round_prices(LAYERS, layer_s=0.0, token_s=1.0, host_key_s=1 / keys)
    proposal = proposed(engine, strategy, prices)
    assert len(proposal.decode) == 0
    assert len(np.concatenate(proposal.cohort_starts)) == ON_HOST


@pytest.mark.parametrize("strategy", [Neo(), Apex()])
def test_one_batch_keeps_the_bound_if_what_it_is_held_against_does(
    engine: TestEngine, strategy: Strategy
) -> None:
    kept = proposed(engine, strategy, prices_of(1e-4), bound_s=10.0 * LAYERS)
    broken = proposed(engine, strategy, prices_of(0.02), bound_s=LAYERS * 1.0)
    assert (len(kept.decode), len(broken.decode)) == (ON_HOST, 0)
