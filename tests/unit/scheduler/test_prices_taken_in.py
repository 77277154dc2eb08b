"""Prices that change while the engine runs count from the next events on."""

from dataclasses import replace

from tests.support.engines import toy_engine
from tests.support.step_prices import round_prices
from tests.unit.scheduler.priced_view import LAYERS, PROMPT, SETUP

from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams


def test_steps_are_weighed_by_what_has_been_learnt_since() -> None:
    before, learnt = (round_prices(LAYERS, layer_s=layer_s) for layer_s in (1.0, 2.0))
    with toy_engine(replace(SETUP, prices=before), LAYERS) as engine:
        params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
        engine.core.add_request(EngineRequest("0", tuple(range(1, PROMPT + 1)), params))
        scheduler = engine.scheduler
        while not len(scheduler.rows.owned()):
            engine.core.step()
        assert scheduler.prices is before
        scheduler._base_prices = learnt
        while len(scheduler.rows.owned()):
            engine.core.step()
        assert scheduler.prices is learnt
