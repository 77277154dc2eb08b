"""Steps that tight pools make hard: nobody is stuck, and no step exceeds its bounds."""

import random

import pytest
from tests.support.engines import toy_engine
from tests.support.setups import Setup

from tandem.plan.strategy_names import most_sampled_rows
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams


def request(name: str, prompt: int, output: int) -> EngineRequest:
    tokens = tuple((7 * position + prompt) % 45 + 1 for position in range(prompt))
    sampling = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
    return EngineRequest(name, tokens, sampling)


@pytest.mark.parametrize("strategy", ["rendezvous", "ride-along"])
def test_a_prompt_that_may_not_leave_the_host_waits_for_a_swapped_row_ahead_of_it(
    strategy: str,
) -> None:
    """The swapped row holds the blocks that the prompt lacks, and the device is free."""
    setup = Setup(
        strategy=strategy,
        device_blocks=8,
        host_blocks=8,
        max_num_seqs=3,
        max_host_seqs=1,
        max_device_seqs=2,
        max_num_batched_tokens=16,
        preemption_mode="swap",
        prefix_caching=False,
    )
    with toy_engine(setup) as engine:
        for index, shape in enumerate([(60, 14), (60, 14), (100, 4)]):
            engine.core.add_request(request(f"r{index}", *shape))
        steps = 0
        while engine.core.has_work():
            engine.core.step()
            steps += 1
            assert steps < 200
        engine.check_idle()
        assert engine.scheduler.running.num_preemptions


def test_rows_preempted_elsewhere_leave_no_room_in_a_step() -> None:
    """A cohort that starts preempts rows that the main lane never had: neither tokens of a prompt
    nor rows to be sampled may take their place, which the compiler refuses.
    """
    preempted = 0
    for seed in range(8):
        draw = random.Random(seed)
        setup = Setup(
            strategy="rendezvous",
            device_blocks=48,
            host_blocks=6,
            block_size=4,
            max_num_seqs=9,
            max_host_seqs=3,
            max_device_seqs=1,
            max_cohorts=2,
            max_cohort_rows=1,
            max_sampled_rows=most_sampled_rows("rendezvous", 9, 1, 1),
            max_num_batched_tokens=draw.choice([9, 10, 12]),
            prefix_caching=False,
        )
        with toy_engine(setup) as engine:
            core = engine.core
            core.add_request(request("short", draw.randint(1, 3), 3))
            for index in range(3):
                core.add_request(request(f"host {index}", draw.randint(2, 4), 16))
            for index in range(2):
                core.add_request(request(f"split {index}", draw.randint(2, 4), 198))
            live, made = "", 0
            for step in range(200):
                if not live and step > 4:
                    live, made = f"prompt {made}", made + 1
                    core.add_request(request(live, draw.randint(9, 20), 196))
                if any(output.request_id == live for output in core.step()):
                    core.abort(live)
                    live = ""
            preempted += engine.scheduler.running.num_preemptions
    assert preempted > 20


def test_a_prompt_takes_no_more_tokens_than_a_step_has_where_a_cohort_preempts() -> None:
    setup = Setup(
        strategy="rendezvous",
        device_blocks=64,
        host_blocks=6,
        block_size=4,
        max_num_seqs=5,
        max_host_seqs=3,
        max_device_seqs=1,
        max_cohorts=2,
        max_cohort_rows=1,
        max_sampled_rows=3,
        max_num_batched_tokens=8,
        prefix_caching=False,
    )
    shapes = [(3, 4), (3, 16), (3, 16), (3, 16), (200, 3)]
    with toy_engine(setup) as engine:
        for index, shape in enumerate(shapes):
            engine.core.add_request(request(f"r{index}", *shape))
        steps = 0
        while engine.core.has_work():
            engine.core.step()  # the compiler refuses larger ones
            steps += 1
            assert steps < 500
        engine.check_idle()
        assert engine.scheduler.running.num_preemptions


@pytest.mark.parametrize(("output", "most"), [(12, 32), (13, 32), (14, 30)])
def test_room_to_grow_is_kept_for_those_alone_that_may_still_begin_a_block(
    output: int, most: int
) -> None:
    """Of 32 blocks of 16 tokens, a sixteenth; the last token of a request needs no KV."""
    setup = Setup(
        strategy="gpu-only",
        device_blocks=32,
        host_blocks=0,
        block_size=16,
        max_num_seqs=40,
        max_num_batched_tokens=400,
        prefix_caching=False,
    )
    with toy_engine(setup) as engine:
        for number in range(40):
            engine.core.add_request(request(f"r{number}", 4, output))
        engine.core.step()
        assert len(engine.scheduler.rows.owned()) == most
        while engine.core.has_work():
            engine.core.step()
        engine.check_idle()
