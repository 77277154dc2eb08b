"""Nobody waits for longer than is promised (invariant 6), in runs in which somebody could.

The bounds grow with layers, sweeps in flight, rows and what may overtake: here these are as few as
can be, and requests so long, or so many, that a scheduler that passes one over goes beyond them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.engines import toy_engine
from tests.support.overtakings import OvertakingWatch, most_ends
from tests.support.rank_waits import WaitWatch, most_sweeps
from tests.support.scenarios import EOS
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup
from tests.support.switching import Switching

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.overtaking import Overtaking
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import RowState
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.registry import make_strategy
from tandem.scheduler.view import SchedulerView
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

LAYERS = 1
LONG = 80
"""Tokens of a request beside which another can be kept waiting for more sweeps than are allowed."""
HOSTED = ("rendezvous", "rendezvous-ahead", "asymmetric", "symmetric", "neo", "apex", "auto")
SETUP = Setup(
    device_blocks=256,
    host_blocks=256,
    block_size=4,
    max_num_seqs=4,
    max_cohorts=2,
    overlap=False,
    prefix_caching=False,
    executor="inline",
    eos_ids=(EOS,),
)


def request(number: int, tokens: int, priority: int = 0) -> EngineRequest:
    """Always as long as that."""
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest(f"r{number}", (number + 1, 2, 3), params, priority=priority)


@dataclass(slots=True)
class Starving:
    """A strategy whose first row in rank is left out for as long as there is another to go on."""

    inner: Strategy

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def uses_host(self) -> bool:
        return self.inner.uses_host

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """The inner one's without it."""
        proposal, rows = self.inner.propose(view, prices), view.rows
        running = np.flatnonzero(rows.state == RowState.RUNNING)
        if len(running) < 2:
            return proposal
        first = int(running[np.argmin(rows.order[running])])
        starts = tuple(each[each != first] for each in proposal.cohort_starts)
        without = proposal._replace(
            decode=proposal.decode[proposal.decode != first],
            cohort_starts=tuple(each for each in starts if len(each)),
            cohort_joins=tuple(c for c in proposal.cohort_joins if c != rows.cohort[first]),
        )
        return without if without.computes else proposal


def watched(setup: Setup, script: Script) -> tuple[int, int]:
    """Run to the end, and look at everybody's waiting after each step: the longest wait of whoever
    was first, in sweeps, and how often anybody was overtaken at most.
    """
    with toy_engine(setup, LAYERS) as engine:
        waits, overtaking = WaitWatch(engine), OvertakingWatch(engine)

        def look() -> None:
            waits.look()
            overtaking.look()

        run(engine.core, script, steps=max_steps(script, LAYERS), after_step=look)
        engine.check_idle()
        return waits.longest, overtaking.longest


@st.composite
def long_runs(draw: st.DrawFn) -> tuple[Setup, Script, tuple[str, ...]]:
    """Requests whose outputs are longer than anybody may wait, others that come and go."""
    where = draw(st.sampled_from((0, 1, 3)))
    setup = replace(
        SETUP,
        max_host_seqs=4 - where,
        max_device_seqs=where,
        kv_placement=draw(st.sampled_from(("auto", "host"))),
        device_blocks=draw(st.sampled_from((31, 64, 256))),
        max_num_seqs=draw(st.sampled_from((2, 4))),
        max_cohort_rows=draw(st.sampled_from((1, 2))),
        executor=draw(st.sampled_from(("inline", "exact"))),
        executor_seed=draw(st.integers(0, 2**16)),
    )
    arrivals: dict[int, list[EngineRequest]] = {}
    for number in range(draw(st.integers(2, 4))):
        tokens = draw(st.sampled_from((LONG, LONG, 20)))
        at = draw(st.sampled_from((0, 0, 7)))
        arrivals.setdefault(at, []).append(request(number, tokens))
    names = (*HOSTED, "ride-along")
    return setup, Script(arrivals), draw(st.sampled_from((names, *((each,) for each in names))))


@pytest.mark.timeout(600)
@given(drawn=long_runs(), seed=st.integers(0, 2**16))
@settings(max_examples=6)
def test_the_first_waits_no_longer_than_is_promised(
    drawn: tuple[Setup, Script, tuple[str, ...]], seed: int
) -> None:
    setup, script, names = drawn
    sweeps, _ = watched(replace(setup, strategy=Switching(names, seed).make()), script)
    event(f"longest wait {sweeps} sweeps")


@pytest.mark.parametrize("strategy", ["gpu-only", *HOSTED])
def test_a_strategy_that_starves_the_first_is_caught(strategy: str) -> None:
    hosted = strategy != "gpu-only"
    setup = replace(
        SETUP,
        strategy=Starving(make_strategy(strategy)),
        max_host_seqs=4 if hosted else 0,
        kv_placement="host" if hosted else "auto",
        max_cohort_rows=1,
    )
    script = Script.at_once([request(number, LONG) for number in range(3)])
    with pytest.raises(AssertionError, match="r0 waits"):
        watched(setup, script)


def test_runs_are_longer_than_the_bounds() -> None:
    with toy_engine(SETUP, LAYERS) as engine:
        config = engine.scheduler.config
        assert most_sweeps(config) == 4 * (8 + 1) * (1 + 1) < LONG
        assert most_ends(replace(config, most_overtaken=1, max_num_seqs=1), 1) == 2


def low_among_high(highs: int) -> Script:
    """One of a low priority, then one after another of a higher, each before the last has ended."""
    arrivals = {0: [request(0, 4, priority=0)], 1: [request(1, 30, priority=1)]}
    arrivals |= {2 + 3 * n: [request(2 + n, 3, priority=0)] for n in range(highs)}
    return Script(arrivals)


def never(*_: object) -> None:
    """Nobody is raised."""


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("strategy", ["gpu-only", "rendezvous"])
def test_a_low_priority_gets_on_among_higher_ones(most: int, strategy: str) -> None:
    setup = replace(SETUP, strategy=make_strategy(strategy), max_num_seqs=1, most_overtaken=most)
    assert watched(setup, low_among_high(12)) == (0, most)


@pytest.mark.parametrize("blind", [Overtaking.settle, Overtaking.by])
def test_a_scheduler_that_raises_nobody_is_caught(
    blind: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Overtaking, blind.__name__, never)
    setup = replace(SETUP, strategy=make_strategy("gpu-only"), max_num_seqs=1, most_overtaken=1)
    with pytest.raises(AssertionError, match=r"r1 was overtaken 3 times"):
        watched(setup, low_among_high(12))
