"""Whatever happens to an engine, its tokens, its memory and its promises stay right.

The model is the toy whose KV slots know which token wrote them, so that a wrong block table, a
block used again too early or a missing wait is an error and not a small difference.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.engines import TestEngine, model_engine, tiny_model, toy_engine
from tests.support.overtakings import OvertakingWatch
from tests.support.rank_waits import WaitWatch
from tests.support.scenarios import Scenario, scenarios
from tests.support.script import Generated, Script, max_steps, run
from tests.support.setups import Setup
from tests.support.step_prices import any_prices
from tests.support.ties import differs_at_tie

from tandem.cost.step_prices import StepPrices
from tandem.runtime.running import Running
from tandem.scheduler.strategies.base import Strategy
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

NUM_LAYERS = 2
_SLOT_BYTES, _BESIDE_BYTES = 4096 + 32, 16384  # of a file of pages


def setup_on(scenario: Scenario, strategy: Strategy, disk: Path) -> Setup:
    """A scenario's setup, with the folder as its disk if there is one."""
    setup = replace(scenario.setup, strategy=strategy)
    if not scenario.disk_blocks:
        return setup
    room = _BESIDE_BYTES + scenario.disk_blocks * _SLOT_BYTES
    return replace(setup, disk=disk, disk_bytes=room)


def check_results(
    scenario: Scenario, results: dict[str, Generated], expected: dict[str, Generated]
) -> None:
    """Survivors got exactly the plain run's tokens; the aborted ones a beginning of them."""
    for request_id, result in results.items():
        wanted = expected[request_id]
        if result.aborted:
            assert result.token_ids == wanted.token_ids[: len(result.token_ids)]
            continue
        assert result.token_ids == wanted.token_ids, request_id
        assert result.finish_reason == wanted.finish_reason
        assert result.stop_token_id == wanted.stop_token_id
        assert result.logprobs == wanted.logprobs


# a quarter of a minute on a core of its own; that every run ends is bounded in steps, not by time
@pytest.mark.timeout(600)
@given(scenario=scenarios())
@settings(max_examples=120)
def test_any_run_gives_the_tokens_of_the_plain_run(scenario: Scenario) -> None:
    plain = Script.at_once(scenario.script.requests)
    with toy_engine(scenario.reference(), NUM_LAYERS) as engine:
        expected = run(engine.core, plain, steps=max_steps(plain, NUM_LAYERS))

    strategy = scenario.switching()
    bound = max_steps(scenario.script, NUM_LAYERS)
    lives = 2 if scenario.disk_blocks else 1  # the second one finds what the first one wrote
    with TemporaryDirectory() as folder:
        setup = setup_on(scenario, strategy, Path(folder))
        for _ in range(lives):
            with toy_engine(setup, NUM_LAYERS) as engine:
                watch, overtaking = WaitWatch(engine), OvertakingWatch(engine)

                def look(watch: WaitWatch = watch, other: OvertakingWatch = overtaking) -> None:
                    watch.look()
                    other.look()

                results = run(engine.core, scenario.script, steps=bound, after_step=look)
                if engine.disk is not None:
                    engine.settle_disk()
                engine.check_idle()
                stats = engine.stats
            check_results(scenario, results, expected)

    event(f"strategies {sorted(strategy.used)}")
    event(f"longest wait {watch.longest // 10 * 10} sweeps")
    event(f"overtaken {overtaking.longest} times")
    event(f"preempted {stats.preemptions > 0}, moved {stats.transfers > 0}")
    event(f"joins {stats.cohort_joins > 0}, waits {stats.cohort_waits > 0}")
    if stats.disk is not None:
        event(f"disk: written {stats.disk.written_blocks > 0}, read {stats.disk.read_blocks > 0}")


@pytest.mark.timeout(600)
@given(
    scenario=scenarios(),
    lists=st.lists(any_prices(NUM_LAYERS), min_size=2, max_size=4),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=25)
def test_prices_that_change_as_it_runs_change_no_token(
    scenario: Scenario, lists: list[StepPrices], seed: int
) -> None:
    """As calibration does, but by more, and again and again."""
    plain = Script.at_once(scenario.script.requests)
    with toy_engine(scenario.reference(), NUM_LAYERS) as engine:
        expected = run(engine.core, plain, steps=max_steps(plain, NUM_LAYERS))

    draw, bound, changes = random.Random(seed), max_steps(scenario.script, NUM_LAYERS), 0
    setup = replace(scenario.setup, strategy=scenario.switching(), prices=lists[0])
    with toy_engine(setup, NUM_LAYERS) as engine:
        scheduler, watch = engine.scheduler, WaitWatch(engine)

        def look() -> None:
            nonlocal changes
            watch.look()
            if draw.random() < 0.3:
                scheduler._base_prices = draw.choice(lists)  # taken in with the next events
            changes += scheduler.prices is not lists[0]

        results = run(engine.core, scenario.script, steps=bound, after_step=look)
        engine.check_idle()
    check_results(scenario, results, expected)
    event(f"changed {changes > 0}")


@st.composite
def steady_loads(draw: st.DrawFn) -> Scenario:
    """A few requests of low priorities before and among many of higher ones, which come as others
    end, in memory that is too small for all; some are aborted, preempted or not.
    """
    scenario = draw(scenarios())
    setup = replace(
        scenario.setup,
        most_overtaken=draw(st.sampled_from((1, 2))),
        max_num_seqs=draw(st.sampled_from((1, 2))),
    )
    own = scenario.script.requests
    arrivals: dict[int, list[EngineRequest]] = {}
    aborts: dict[int, list[str]] = {}
    for number in range(draw(st.integers(8, 14))):
        copied = own[number % len(own)]
        sampling = SamplingParams(
            max_tokens=min(1 + number % 3, copied.sampling.max_tokens or 1),
            temperature=0.0,
            ignore_eos=True,
        )
        priority = draw(st.sampled_from((0, 0, 0, -1, 1)))
        step = draw(st.integers(1, 3)) * number
        arrivals.setdefault(step, []).append(
            EngineRequest(
                f"r{number}",
                copied.prompt_token_ids,
                sampling,
                priority=1 if number == 1 else priority,
            )
        )
        if draw(st.sampled_from((False, False, True))):
            aborts.setdefault(step + draw(st.integers(1, 12)), []).append(f"r{number}")
    return replace(scenario, setup=setup, script=Script(arrivals, aborts), disk_blocks=0)


@pytest.mark.timeout(600)
@given(scenario=steady_loads())
@settings(max_examples=15)
def test_nobody_is_overtaken_more_often_than_is_allowed(scenario: Scenario) -> None:
    bound = max_steps(scenario.script, NUM_LAYERS)
    setup = replace(scenario.setup, strategy=scenario.switching())
    with toy_engine(setup, NUM_LAYERS) as engine:
        watch = OvertakingWatch(engine)
        run(engine.core, scenario.script, steps=bound, after_step=watch.look)
        engine.check_idle()
    event(f"overtaken {watch.longest} times")


@contextmanager
def breaking(engine: TestEngine, at: int) -> Iterator[None]:
    """The operation of that number, from 1, raises."""
    inner, count = engine.machine.runner.run, 0

    def run_op(running: Running) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise ZeroDivisionError("broken on purpose")
        inner(running)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.machine.runner, "run", run_op)
        yield


@pytest.mark.timeout(600)
@given(scenario=scenarios(), at=st.integers(1, 300))
@settings(max_examples=40)
def test_an_operation_that_fails_ends_the_run_with_a_beginning_of_the_tokens(
    scenario: Scenario, at: int
) -> None:
    plain = Script.at_once(scenario.script.requests)
    with toy_engine(scenario.reference(), NUM_LAYERS) as engine:
        expected = run(engine.core, plain, steps=max_steps(plain, NUM_LAYERS))

    bound, failed = max_steps(scenario.script, NUM_LAYERS), False
    got: dict[str, list[int]] = {request_id: [] for request_id in expected}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        setup = setup_on(scenario, scenario.switching(), Path(folder))
        engine = stack.enter_context(toy_engine(setup, NUM_LAYERS))
        stack.enter_context(breaking(engine, at))
        step = engine.core.step

        def told():
            outputs = step()
            for output in outputs:
                got[output.request_id] += output.token_ids
            return outputs

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.core, "step", told)
            try:
                run(engine.core, scenario.script, steps=bound)
            except EngineDeadError as error:
                assert "ZeroDivisionError: broken on purpose" in str(error)  # noqa: PT017
                failed = True
        engine.scheduler.check()  # what runs and what is in flight still holds its memory, once
        if not failed:
            engine.check_idle()

    for request_id, tokens in got.items():
        assert tokens == expected[request_id].token_ids[: len(tokens)], request_id
    event(f"failed {failed}")


def greedy_version(scenario: Scenario) -> Scenario:
    """The same situation with requests whose choices can be compared across arithmetics."""

    def greedy(request: EngineRequest) -> EngineRequest:
        sampling = SamplingParams(
            max_tokens=request.sampling.max_tokens, temperature=0.0, ignore_eos=True, logprobs=2
        )
        return replace(request, sampling=sampling)

    arrivals = {
        step: [greedy(request) for request in group]
        for step, group in scenario.script.arrivals.items()
    }
    return replace(scenario, script=Script(arrivals, scenario.script.aborts))


@given(scenario=scenarios(block_sizes=(16,)))
@settings(max_examples=12)
def test_real_arithmetic_gives_the_same_but_for_ties(scenario: Scenario) -> None:
    scenario = greedy_version(scenario)
    plain = Script.at_once(scenario.script.requests)
    with model_engine(tiny_model(), scenario.reference()) as engine:
        expected = run(engine.core, plain, steps=max_steps(plain, NUM_LAYERS))

    setup = replace(scenario.setup, strategy=scenario.switching())
    bound = max_steps(scenario.script, NUM_LAYERS)
    with model_engine(tiny_model(), setup) as engine:
        results = run(engine.core, scenario.script, steps=bound)
        engine.check_idle()

    ties = sum(differs_at_tie(result, expected[name]) for name, result in results.items())
    assert ties <= sum(len(result.token_ids) for result in expected.values()) / 1000
