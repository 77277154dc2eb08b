"""Where a request's blocks may lie, and that what is accepted can run."""

from dataclasses import replace

import pytest
from tests.support.engines import toy_engine
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup

from tandem.spec.config import KVPlacement
from tandem.spec.errors import ContextLengthError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams


def request(num_prompt: int, max_tokens: int = 4) -> EngineRequest:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest("r", tuple(i % 45 + 1 for i in range(num_prompt)), params)


@pytest.mark.parametrize("placement", ["auto", "split"])
@pytest.mark.parametrize(("device", "host"), [(10, 4), (4, 10), (7, 7), (13, 1)])
def test_a_request_that_fills_both_tiers_together_runs(
    placement: KVPlacement, device: int, host: int
) -> None:
    setup = Setup(
        strategy="ride-along", kv_placement=placement, device_blocks=device, host_blocks=host
    )
    script = Script.at_once([request(14 * setup.block_size - 3)])
    with toy_engine(setup) as engine:
        (result,) = run(engine.core, script, steps=max_steps(script, 2)).values()
        engine.check_idle()
    assert len(result.token_ids) == 4


def test_one_that_exceeds_both_together_is_refused_with_the_numbers() -> None:
    setup = Setup(strategy="ride-along", kv_placement="split", device_blocks=10, host_blocks=4)
    with (
        toy_engine(setup) as engine,
        pytest.raises(ContextLengthError, match="need 15 KV blocks"),
    ):
        engine.core.add_request(request(14 * setup.block_size + 1))


@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous"])
@pytest.mark.parametrize(("most", "expected"), [(0, 0), (2, 2), (8, 3)])
def test_for_want_of_room_as_many_as_wanted_go_to_the_host(
    strategy: str, most: int, expected: int
) -> None:
    """Room for two on the accelerator; of the three others, no more than `most` run as well."""
    setup = Setup(
        strategy=strategy,
        device_blocks=5,
        host_blocks=16,
        max_num_seqs=5,
        max_host_seqs=most,
        prefix_caching=False,
    )
    requests = [replace(request(20, max_tokens=10), request_id=f"r{i}") for i in range(5)]
    with toy_engine(setup) as engine:
        for each in requests:
            engine.core.add_request(each)
        rows, peak, peak_all = engine.scheduler.rows, 0, 0
        while engine.core.has_work():
            engine.core.step()
            peak = max(peak, int((rows.num_host_blocks[rows.owned()] > 0).sum()))
            peak_all = max(peak_all, len(rows.owned()))
        engine.check_idle()
    assert (peak, peak_all) == (expected, 2 + expected)


@pytest.mark.parametrize(("most", "expected"), [(0, (4, 2)), (1, (1, 2)), (3, (3, 2))])
def test_no_more_than_wanted_begin_on_the_device_beside_those_on_the_host(
    most: int, expected: tuple[int, int]
) -> None:
    """Room for four short requests, two blocks each in the end."""
    setup = Setup(
        strategy="rendezvous",
        device_blocks=9,
        host_blocks=16,
        max_num_seqs=6,
        max_host_seqs=2,
        max_device_seqs=most,
        prefix_caching=False,
    )
    requests = [replace(request(20, max_tokens=10), request_id=f"r{i}") for i in range(6)]
    with toy_engine(setup) as engine:
        for each in requests:
            engine.core.add_request(each)
        rows, peaks = engine.scheduler.rows, (0, 0)
        while engine.core.has_work():
            engine.core.step()
            owned = rows.owned()
            hosted = int((rows.num_host_blocks[owned] > 0).sum())
            peaks = max(peaks[0], len(owned) - hosted), max(peaks[1], hosted)
        engine.check_idle()
    assert peaks == expected


def test_beside_cohorts_those_on_the_device_never_go_on_on_the_host() -> None:
    """They would join a cohort, and keep their blocks on the device meanwhile: the last in rank is
    preempted.
    """
    setup = Setup(
        strategy="rendezvous",
        device_blocks=7,
        host_blocks=32,
        max_num_seqs=6,
        max_host_seqs=2,
        max_device_seqs=4,
        prefix_caching=False,
    )
    requests = [replace(request(20, max_tokens=40), request_id=f"r{i}") for i in range(12)]
    script = Script.at_once(requests)
    with toy_engine(setup) as engine:
        for each in requests:
            engine.core.add_request(each)
        rows, left = engine.scheduler.rows, max_steps(script, 16)
        while engine.core.has_work():
            engine.core.step()
            left -= 1
            assert left, "does not end"
            owned = rows.owned()
            both = (rows.num_host_blocks > 0) & (rows.num_blocks > rows.num_host_blocks)
            assert not both[owned].any()
        engine.check_idle()
    assert engine.scheduler.running.num_preemptions


@pytest.mark.parametrize(
    ("rows", "split_blocks", "expected"),
    [(4, 0, [4, 4]), (4, 2, [2, 2, 2]), (4, 99, [8]), (1, 0, [8]), (1, 2, [2])],
)
def test_requests_that_are_too_long_have_what_the_plan_says_on_the_device(
    rows: int, split_blocks: int, expected: list[int]
) -> None:
    """Of eight blocks there; without a plan half of them, or all where one runs at a time."""
    setup = Setup(
        strategy="ride-along",
        device_blocks=8,
        host_blocks=40,
        max_num_seqs=rows,
        split_blocks=split_blocks,
        prefix_caching=False,
    )
    requests = [replace(request(10 * 16, max_tokens=10), request_id=f"r{i}") for i in range(3)]
    with toy_engine(setup) as engine:
        for each in requests:
            engine.core.add_request(each)
        table, on_device = engine.scheduler.rows, list[int]()
        while engine.core.has_work():
            engine.core.step()
            owned = table.owned()
            found = (table.num_blocks - table.num_host_blocks)[owned].tolist()
            on_device = found if sum(found) > sum(on_device) else on_device
        engine.check_idle()
    assert on_device == expected
