"""Sweeps sample no more rows than there is room for, and everybody still gets every token."""

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.engines import toy_engine
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup

from tandem.plan.strategy_names import most_sampled_rows
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

NUM_LAYERS = 3


@given(
    prompts=st.lists(st.integers(1, 4), min_size=20, max_size=30),
    strategy=st.sampled_from(["rendezvous", "rendezvous-ahead"]),
    device=st.integers(1, 3),
    cohorts=st.integers(2, 4),
    cohort_rows=st.integers(2, 4),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=25)
def test_any_run_of_a_plan_of_cohorts_gives_the_tokens_of_the_plain_run(
    prompts: list[int], strategy: str, device: int, cohorts: int, cohort_rows: int, seed: int
) -> None:
    """All come at once, with prompts of which one step reads many: as many as run could be sampled
    after it, and cohorts whose joins are refused catch up with each other.
    """
    requests = [
        EngineRequest(
            str(number),
            tuple(range(3, 3 + tokens)),
            SamplingParams(max_tokens=4 + number % 5, temperature=0.0, ignore_eos=True),
        )
        for number, tokens in enumerate(prompts)
    ]
    script = Script.at_once(requests)
    with toy_engine(Setup(max_num_seqs=32), NUM_LAYERS) as engine:
        expected = run(engine.core, script, steps=max_steps(script, NUM_LAYERS))
    hosted = cohorts * cohort_rows
    rows = device + hosted
    setup = Setup(
        strategy=strategy,
        executor="exact",
        executor_seed=seed,
        host_blocks=128,
        max_num_seqs=rows,
        max_host_seqs=hosted,
        max_device_seqs=device,
        max_cohorts=cohorts,
        max_cohort_rows=cohort_rows,
        # the compiler refuses a sweep that would sample more
        max_sampled_rows=most_sampled_rows(strategy, rows, device, cohort_rows),
    )
    with toy_engine(setup, NUM_LAYERS) as engine:
        results = run(engine.core, script, steps=max_steps(script, NUM_LAYERS))
        engine.check_idle()
        joins, waits = engine.stats.cohort_joins, engine.stats.cohort_waits
    assert results == expected
    assert joins
    event(f"waits {waits > 0}")
