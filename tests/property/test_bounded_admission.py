"""Admitting to the host stops at whom weighing leaves out: proposals are as if it tried all."""

from dataclasses import dataclass, replace
from typing import get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled
from tests.unit.simulator.setups import Case, planned, workload

from tandem.cost.step_prices import StepPrices
from tandem.plan.stepped import stepped
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.auto import Auto
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.scheduler.strategies.step_options import StepOptions
from tandem.scheduler.view import SchedulerView
from tandem.simulator.build import Planned, build
from tandem.simulator.loop import Loop
from tandem.simulator.record import Record
from tandem.spec.config import PreemptionMode


def in_steps(case: Case, **changes: object) -> Planned:
    plan = planned(case, requests=12)
    return replace(plan, plan=replace(stepped(plan.plan, "auto"), **changes))


PLANS = {
    "planned apart": in_steps(Case("ride-along", 4, 8)),
    "whoever comes": in_steps(Case("ride-along", 4, 8), max_device_seqs=0),
    "little memory": in_steps(Case("ride-along", 6, 6, device_blocks=14, host_blocks=60)),
    "little, whoever comes": in_steps(
        Case("ride-along", 6, 6, device_blocks=14, host_blocks=60), max_device_seqs=0
    ),
    "prompts here": in_steps(Case("ride-along", 4, 6, device_blocks=26, prompts_here=2)),
}


@dataclass
class Compared(Auto):
    """Chooses as `auto`, and lists the options twice.

    Attributes:
        slower: how many times as long the host's arithmetic takes.
        stopped: steps in which fewer requests were tried.
    """

    slower: float
    stopped: int = 0

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """Weighed by a slower host."""
        assert prices is not None
        host = replace(prices.host, pair_s=prices.host.pair_s * self.slower)
        prices = replace(prices, host=host)
        stopping, trying = StepOptions(view, prices), StepOptions(view, prices)
        trying.view = trying.view._replace(is_left_out=None)
        few, all_ = (RideAlong().propose(each.view, prices) for each in (stopping, trying))
        assert repr(stopping.admitting(few)) == repr(trying.admitting(all_))
        assert repr(list(stopping.all())) == repr(list(trying.all()))
        self.stopped += len(few.admissions) < len(all_.admissions)
        return super().propose(view, prices)


def stopped(
    name: str,
    rate: float | None = None,
    seed: int = 0,
    slower: float = 100.0,
    bound_s: float | None = None,
    preemption: PreemptionMode = "auto",
) -> int:
    """Serve requests; in how many steps fewer were tried."""
    plan, requests = PLANS[name], workload(requests=40, rate=rate, seed=seed).requests
    machine = build(plan, ttft_bound_s=bound_s, preemption=preemption)
    strategy = machine.scheduler.strategy = Compared(slower)
    Loop(machine.scheduler, machine.executor, Record(requests), machine.token_id, None).run()
    return strategy.stopped


@settings(max_examples=scaled(10))
@given(
    name=st.sampled_from(list(PLANS)),
    rate=st.sampled_from([None, 10.0, 100.0]),
    seed=st.integers(0, 1000),
    slower=st.sampled_from([1.0, 10.0, 100.0, 1000.0]),
    bound_s=st.sampled_from([None, None, 0.1, 1.0, 5.0]),
    preemption=st.sampled_from(get_args(PreemptionMode)),
)
@example(name="little memory", rate=None, seed=0, slower=100.0, bound_s=None, preemption="swap")
@example(name="planned apart", rate=None, seed=1, slower=100.0, bound_s=5.0, preemption="auto")
@example(
    name="little, whoever comes", rate=None, seed=2, slower=100.0, bound_s=None, preemption="swap"
)
@example(name="prompts here", rate=None, seed=3, slower=100.0, bound_s=None, preemption="auto")
def test_proposals_are_as_if_all_were_tried(
    name: str,
    rate: float | None,
    seed: int,
    slower: float,
    bound_s: float | None,
    preemption: PreemptionMode,
) -> None:
    stopped(name, rate, seed, slower, bound_s, preemption)


def test_most_are_not_tried_where_the_host_is_slow() -> None:
    assert stopped("planned apart") > 100
    assert stopped("planned apart", slower=1.0) == 0
