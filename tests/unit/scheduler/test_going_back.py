"""Where the numbers in both tiers are planned, who is preempted on the device goes back there."""

import pytest
from tests.support.engines import toy_engine
from tests.support.setups import Setup
from tests.support.step_prices import round_prices
from tests.unit.scheduler.priced_view import LAYERS

from tandem.scheduler.rows import RowState
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.strategies.tier_rules import TierRules
from tandem.spec.config import PreemptionMode
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

SIZE = 4
OUTPUT = 56
SETUP = {
    "device_blocks": 24,
    "host_blocks": 64,
    "block_size": SIZE,
    "max_num_seqs": 5,
    "max_host_seqs": 2,
    "max_device_seqs": 3,
    "max_num_batched_tokens": 64,
    "prefix_caching": False,
}


def request(name: str, prompt: int, output: int) -> EngineRequest:
    tokens = tuple((7 * position + prompt) % 45 + 1 for position in range(prompt))
    sampling = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
    return EngineRequest(name, tokens, sampling)


@pytest.mark.parametrize("strategy", ["rendezvous", "ride-along"])
def test_those_behind_it_start_on_the_host_meanwhile(strategy: str) -> None:
    """Three grow to 15 blocks each on a device of 24, while those on the host are soon done."""
    with toy_engine(Setup(strategy=strategy, **SETUP)) as engine:
        core, scheduler = engine.core, engine.scheduler
        for index in range(3):
            core.add_request(request(f"long {index}", 4, OUTPUT))
        for index in range(8):
            core.add_request(request(f"short {index}", 4, 6))
        preempted, hosted, ends = set[str](), set[str](), list[str]()
        while core.has_work():
            ends += [out.request_id for out in core.step() if out.finish_reason is not None]
            preempted.update(each.request_id for each in scheduler.waiting if each.preemptions)
            rows = scheduler.rows
            here = rows.owned()
            on_host = here[rows.num_host_blocks[here] > 0].tolist()
            if any(not each.preemptions for each in scheduler.waiting):
                hosted.update(str(rows.request_ids[row]) for row in on_host)
        engine.check_idle()
        assert preempted
        assert all(name.startswith("long") for name in preempted)
        assert all(name.startswith("short") for name in hosted)
        assert len(ends) == 11
        # nobody behind waited for it
        assert ends.index("short 7") < max(ends.index(name) for name in preempted)


@pytest.mark.parametrize("strategy", ["rendezvous", "ride-along"])
def test_those_behind_a_copied_one_start_on_the_host_meanwhile(strategy: str) -> None:
    """Likewise where its KV waits on the host."""
    with toy_engine(Setup(strategy=strategy, preemption_mode="swap", **SETUP)) as engine:
        core, scheduler = engine.core, engine.scheduler
        for index in range(3):
            core.add_request(request(f"long {index}", 4, OUTPUT))
        for index in range(30):
            core.add_request(request(f"short {index}", 4, 6))
        began, there = set[str](), set[str]()
        while core.has_work():
            core.step()
            rows = scheduler.rows
            now = {str(rows.request_ids[row]) for row in rows.owned().tolist()}
            began.update(now - there if rows.count(RowState.SWAPPED) else ())
            there |= now
        engine.check_idle()
        assert scheduler.running.num_preemptions
        assert began, "while somebody waited for the device"
        assert all(name.startswith("short") for name in began)


@pytest.mark.parametrize(
    ("strategy", "mode", "most_steps", "most_pause"),
    [
        ("ride-along", "recompute", 57, 2),
        ("rendezvous", "recompute", 87, OUTPUT),
        ("ride-along", "swap", 60, 5),  # copies take some steps
        ("rendezvous", "swap", 91, OUTPUT + 4),
    ],
)
def test_a_host_that_nobody_else_needs(
    strategy: str, mode: PreemptionMode, most_steps: int, most_pause: int
) -> None:
    """Three grow to 15 blocks each on a device of 24, and nobody waits behind them: if they ride
    along, who is preempted goes on on the host; else as soon as those ahead of it end.
    """
    with toy_engine(Setup(strategy=strategy, preemption_mode=mode, **SETUP)) as engine:
        core, step, pause, last = engine.core, 0, 0, dict[str, int]()
        for index in range(3):
            core.add_request(request(f"long {index}", 4, OUTPUT))
        while core.has_work():
            for out in core.step():
                pause = max(pause, step - last.get(out.request_id, step))
                last[out.request_id] = step
            step += 1
        engine.check_idle()
        assert engine.scheduler.running.num_preemptions
    assert step <= most_steps
    assert pause <= most_pause


def test_a_host_that_does_not_pay_is_left_empty_by_who_weighs_times() -> None:
    """Also by who is copied there, and lies there already."""
    dear = round_prices(LAYERS, host_key_s=1e3, wait_s=1e3)
    setup = Setup(strategy="auto", preemption_mode="swap", prices=dear, **SETUP)
    with toy_engine(setup, LAYERS) as engine:
        core, rows = engine.core, engine.scheduler.rows
        for index in range(3):
            core.add_request(request(f"long {index}", 4, OUTPUT))
        while core.has_work():
            core.step()
            assert rows.device_limit[rows.owned()].all()
        engine.check_idle()
        assert engine.scheduler.running.num_preemptions


def test_what_the_device_has_no_room_for_beside_its_reserve_goes_to_the_host() -> None:
    """16 blocks, and one is kept free for those of the host: 16 known ones never come back."""
    setup = Setup(strategy="ride-along", **{**SETUP, "device_blocks": 16, "max_device_seqs": 2})
    with toy_engine(setup) as engine:
        core = engine.core
        core.add_request(request("first", 4, 60))
        core.add_request(request("second", 4, 60))
        for index in range(40):
            core.add_request(request(f"host {index}", 4, 30))
        ends, steps = list[str](), 0
        while core.has_work():
            ends += [out.request_id for out in core.step() if out.finish_reason is not None]
            steps += 1
            assert steps < 3000
        engine.check_idle()
        assert engine.scheduler.running.num_preemptions
        assert ends.index("second") < 20


def test_a_long_queue_is_not_weighed_in_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is preempted goes back; the first behind it that had better wait is the last weighed."""
    weighed, most = list[str](), 0

    def waits(rules: TierRules, sequence: Sequence) -> bool:
        del rules
        weighed.append(sequence.request_id)
        return sequence.request_id.startswith("short")

    monkeypatch.setattr(TierRules, "waits_for_device", waits)
    with toy_engine(Setup(strategy="ride-along", **SETUP)) as engine:
        core, scheduler, preempted = engine.core, engine.scheduler, False
        for index in range(3):
            core.add_request(request(f"long {index}", 4, OUTPUT))
        for index in range(300):
            core.add_request(request(f"short {index}", 4, 6))
        for _ in range(40):
            weighed.clear()
            core.step()
            most = max(most, len(weighed))
            preempted |= any(each.preemptions for each in scheduler.waiting)
    assert preempted
    assert 0 < most <= 4, "of two proposals"
