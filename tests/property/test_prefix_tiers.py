"""Prompts that begin alike, on devices too small to remember them: what comes back is right."""

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.engines import toy_engine
from tests.support.scenarios import Scenario
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup
from tests.support.step_prices import any_prices

from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

NUM_LAYERS = 2
BEGINNINGS = 4


@st.composite
def regulars(draw: st.DrawFn) -> Scenario:
    """Requests of a few kinds over time, more kinds than the device has room for."""
    arrivals: dict[int, list[EngineRequest]] = {}
    aborts: dict[int, list[str]] = {}
    step = 0
    for number in range(draw(st.integers(4, 14))):
        kind, length = draw(st.integers(0, BEGINNINGS - 1)), draw(st.sampled_from((8, 17, 24)))
        prompt = (*((5 * i + 7 * kind) % 43 + 2 for i in range(length)), number % 40 + 1)
        params = SamplingParams(
            max_tokens=draw(st.sampled_from((1, 3, 9))), temperature=0.0, ignore_eos=True
        )
        step += draw(st.sampled_from((0, 0, 3, 40)))
        arrivals.setdefault(step, []).append(EngineRequest(f"r{number}", prompt, params))
        if draw(st.integers(0, 5)) == 0:
            aborts.setdefault(step + draw(st.integers(0, 30)), []).append(f"r{number}")
    strategies = draw(st.sampled_from((("gpu-only",), ("ride-along",), ("rendezvous", "auto"))))
    setup = Setup(
        device_blocks=draw(st.sampled_from((9, 12, 20))),
        host_blocks=draw(st.sampled_from((1, 6, 16, 64))),
        host_prefix_share=draw(st.sampled_from((0.3, 1.0))),
        block_size=4,
        max_num_seqs=draw(st.sampled_from((1, 4))),
        max_num_batched_tokens=draw(st.sampled_from((8, 64))),
        max_host_seqs=draw(st.sampled_from((0, 2))),
        preemption_mode=draw(st.sampled_from(("recompute", "swap", "mix"))),
        executor=draw(st.sampled_from(("exact", "exact", "inline"))),
        executor_seed=draw(st.integers(0, 2**16)),
        overlap=draw(st.booleans()),
        prices=draw(st.none() | any_prices(NUM_LAYERS)),
    )
    return Scenario(setup, Script(arrivals, aborts), strategies, draw(st.integers(0, 2**16)))


@given(scenario=regulars())
@settings(max_examples=60)
def test_prefixes_that_come_back_give_the_same_tokens(scenario: Scenario) -> None:
    steps = max_steps(scenario.script, NUM_LAYERS)
    plain = Script.at_once(scenario.script.requests)
    with toy_engine(scenario.reference(), NUM_LAYERS) as engine:
        expected = run(engine.core, plain, steps=steps)
    with toy_engine(replace(scenario.setup, strategy=scenario.switching()), NUM_LAYERS) as engine:
        results = run(engine.core, scenario.script, steps=steps)
        engine.check_idle()
        stats = engine.stats.prefix
    event(f"demoted {stats.demoted_blocks > 0}, fetched {stats.fetched_tokens > 0}")
    for request_id, result in results.items():
        wanted = expected[request_id].token_ids
        assert result.token_ids == (wanted[: len(result.token_ids)] if result.aborted else wanted)
