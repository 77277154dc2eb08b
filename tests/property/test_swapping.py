"""Many rows that push each other out to the host and back, on pools that hold a few of them."""

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.engines import toy_engine
from tests.support.scenarios import Scenario
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup
from tests.support.step_prices import any_prices, slow_link

from tandem.spec.config import KVPlacement
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

NUM_LAYERS = 2
PLACES: tuple[tuple[str, KVPlacement], ...] = (
    ("gpu-only", "auto"),
    ("ride-along", "auto"),
    ("ride-along", "split"),
    ("rendezvous", "auto"),
)


RETURNS: tuple[tuple[str, KVPlacement], ...] = (
    ("gpu-only", "auto"),
    ("gpu-only", "device"),
    ("ride-along", "device"),
)


def prompt(number: int, num_tokens: int) -> tuple[int, ...]:
    return tuple((3 * i + number) % 45 + 1 for i in range(num_tokens))


def request(number: int, num_prompt: int, max_tokens: int) -> EngineRequest:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest(f"r{number}", prompt(number, num_prompt), params)


@st.composite
def crowds(draw: st.DrawFn) -> Scenario:
    requests = [
        request(number, draw(st.sampled_from((2, 4, 9))), draw(st.sampled_from((5, 13))))
        for number in range(10)
    ]
    strategy, placement = draw(st.sampled_from(PLACES))
    setup = Setup(
        strategy=strategy,
        kv_placement=placement,
        device_blocks=draw(st.sampled_from((6, 8, 10))),
        host_blocks=draw(st.sampled_from((6, 8, 12, 20))),
        block_size=4,
        max_num_seqs=6,
        max_num_batched_tokens=draw(st.sampled_from((8, 64))),
        preemption_mode=draw(st.sampled_from(("swap", "auto", "mix", "mix"))),
        prices=draw(any_prices(NUM_LAYERS)),
        prefix_caching=False,
        executor="inline",
    )
    return Scenario(setup, Script.at_once(requests), (strategy,), 0)


@given(scenario=crowds())
@settings(max_examples=60)
def test_rows_that_swap_get_their_tokens_and_leave_nothing(scenario: Scenario) -> None:
    steps = max_steps(scenario.script, NUM_LAYERS)
    with toy_engine(scenario.reference(), NUM_LAYERS) as engine:
        expected = run(engine.core, scenario.script, steps=steps)
    with toy_engine(replace(scenario.setup, strategy=scenario.switching()), NUM_LAYERS) as engine:
        results = run(engine.core, scenario.script, steps=steps)
        engine.check_idle()
        event(f"moved {engine.stats.transfers > 0}")
    assert {k: r.token_ids for k, r in results.items()} == {
        k: r.token_ids for k, r in expected.items()
    }


@st.composite
def returns(draw: st.DrawFn) -> Scenario:
    """Rows on the device that come back in two ways at once, some aborted, in any order."""
    requests = [
        EngineRequest(
            f"r{number}",
            (3, 1, 4, 1, 5)[: draw(st.sampled_from((0, 5)))]
            + prompt(number, draw(st.integers(1, 9))),
            SamplingParams(max_tokens=draw(st.integers(8, 24)), temperature=0.0, ignore_eos=True),
            priority=draw(st.integers(-2, 2)),
        )
        for number in range(6)
    ]
    arrivals: dict[int, list[EngineRequest]] = {}
    aborts: dict[int, list[str]] = {}
    for each in requests:
        arrivals.setdefault(draw(st.sampled_from((0, 0, 20, 60, 120))), []).append(each)
        if draw(st.integers(0, 3)) == 0:
            aborts.setdefault(draw(st.integers(0, 300)), []).append(each.request_id)
    strategy, placement = draw(st.sampled_from(RETURNS))
    block_size = draw(st.sampled_from((2, 4)))
    setup = Setup(
        strategy=strategy,
        kv_placement=placement,
        device_blocks=draw(st.sampled_from((36, 44))) // block_size,
        host_blocks=draw(st.sampled_from((40, 80, 200))) // block_size,
        block_size=block_size,
        max_num_seqs=6,
        max_num_batched_tokens=draw(st.sampled_from((6, 8, 64))),
        preemption_mode="mix",
        prices=slow_link(NUM_LAYERS),
        prefix_caching=draw(st.booleans()),
        host_prefix_share=draw(st.sampled_from((0.0, 0.3))),
        executor=draw(st.sampled_from(("exact", "exact", "inline"))),
        executor_seed=draw(st.integers(0, 2**16)),
        overlap=draw(st.booleans()),
        launch_ahead_steps=draw(st.sampled_from((2, 3))),
    )
    return Scenario(setup, Script(arrivals, aborts), (strategy,), 0)


@given(scenario=returns())
@settings(max_examples=25)
def test_rows_that_return_in_two_ways_get_their_tokens(scenario: Scenario) -> None:
    steps = max_steps(scenario.script, NUM_LAYERS)
    with toy_engine(scenario.reference(), NUM_LAYERS) as engine:
        expected = run(engine.core, Script.at_once(scenario.script.requests), steps=steps)
    with toy_engine(replace(scenario.setup, strategy=scenario.switching()), NUM_LAYERS) as engine:
        results = run(engine.core, scenario.script, steps=steps)
        engine.check_idle()
        event(f"returned {engine.scheduler.running.returning.num_begun > 0}")
    for request_id, result in results.items():
        wanted = expected[request_id].token_ids
        assert result.token_ids == (wanted[: len(result.token_ids)] if result.aborted else wanted)


def test_swapped_rows_keep_their_kv_while_only_the_device_is_short() -> None:
    setup = Setup(
        strategy="gpu-only",
        device_blocks=8,
        host_blocks=200,
        block_size=4,
        max_num_seqs=6,
        preemption_mode="swap",
        prefix_caching=False,
    )
    requests = [request(number, 4, 13) for number in range(10)]
    script = Script.at_once(requests)
    with toy_engine(setup, NUM_LAYERS) as engine:
        run(engine.core, script, steps=max_steps(script, NUM_LAYERS))
        stats = engine.stats
    # every row that went out came back: nothing was computed twice
    assert stats.preemptions > 0
    assert stats.transfers == 2 * stats.preemptions
