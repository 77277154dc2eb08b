"""Where a request's blocks may lie, and that what is accepted can run."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.engines import toy_engine
from tests.support.script import Script, drain, max_steps, run
from tests.support.setups import Setup
from tests.support.step_prices import round_prices

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.admission import make_sequence
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.placement import device_limit, renewed_split_share, split_share
from tandem.scheduler.rows import RowState, RowTable
from tandem.scheduler.scheduler import Scheduler
from tandem.spec.config import KVPlacement
from tandem.spec.errors import ContextLengthError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import TIERS, Tier


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


BESIDE = Setup(
    strategy="rendezvous",
    device_blocks=7,
    host_blocks=32,
    max_num_seqs=6,
    max_host_seqs=2,
    max_device_seqs=4,
    prefix_caching=False,
    executor="exact",
)
"""Four requests on the device and two in cohorts beside them."""


OUTGROWING = ((20, 40),) * 12
"""Requests that begin in two blocks and end in four: tokens in and out."""


def served(
    setup: Setup,
    on_step: Callable[[RowTable], None],
    lengths: tuple[tuple[int, int], ...] = OUTGROWING,
) -> Scheduler:
    """Serve requests, and look at every step.

    Raises:
        AssertionError: other tokens than with ample memory, a block that is left, or no end.
    """
    requests = [
        replace(request(*each), request_id=f"r{number}") for number, each in enumerate(lengths)
    ]
    script = Script.at_once(requests)
    steps = max_steps(script, 16)
    with toy_engine(Setup(prefix_caching=False)) as engine:
        expected = run(engine.core, script, steps=steps)
    found: dict[str, list[int]] = {name: [] for name in expected}
    with toy_engine(setup) as engine:
        for each in requests:
            engine.core.add_request(each)
        while engine.core.has_work():
            for output in engine.core.step():
                found[output.request_id] += output.token_ids
            steps -= 1
            assert steps, "does not end"
            engine.scheduler.check()
            on_step(engine.scheduler.rows)
        engine.check_idle()
    assert found == {name: list(each.token_ids) for name, each in expected.items()}
    return engine.scheduler


def in_both(rows: RowTable) -> bool:
    """Whether a row has blocks in each tier."""
    both = (rows.num_host_blocks > 0) & (rows.num_blocks > rows.num_host_blocks)
    return bool(both[rows.owned()].any())


@pytest.mark.parametrize("executor_seed", range(3))
@pytest.mark.parametrize("strategy", ["rendezvous", "rendezvous-ahead", "ride-along"])
def test_beside_others_those_on_the_host_never_go_on_on_the_device(
    strategy: str, executor_seed: int
) -> None:
    """They would keep their blocks there while their cohort crosses, and count as if they had
    always been there: further ones would begin on the host.
    """
    setup = replace(
        BESIDE,
        strategy=strategy,
        executor_seed=executor_seed,
        device_blocks=17,
        host_blocks=7,
        max_host_seqs=3,
        max_device_seqs=2,
    )
    hosted = list[int]()

    def look(rows: RowTable) -> None:
        assert not in_both(rows)
        hosted.append(int((rows.num_host_blocks[rows.owned()] > 0).sum()))

    scheduler = served(setup, look)
    assert max(hosted) == 3
    assert scheduler.running.num_preemptions


@pytest.mark.parametrize("executor_seed", range(3))
@pytest.mark.parametrize("strategy", ["rendezvous", "ride-along"])
def test_beside_those_on_the_host_a_swapped_request_comes_back_to_the_device(
    strategy: str, executor_seed: int
) -> None:
    setup = replace(BESIDE, strategy=strategy, executor_seed=executor_seed, preemption_mode="swap")
    swapped = list[int]()

    def look(rows: RowTable) -> None:
        running = rows.state == int(RowState.RUNNING)
        assert int((running & (rows.num_host_blocks > 0)).sum()) <= 2
        swapped.append(rows.count(RowState.SWAPPED))

    served(setup, look)
    assert max(swapped)


def test_who_goes_on_on_the_device_still_counts_as_on_the_host() -> None:
    """Where only the number on the host is bounded. The third request goes on in the last block of
    the device when the fourth fills the host; when that ends, one may follow it, not two.
    """
    setup = Setup(
        strategy="ride-along",
        device_blocks=5,
        host_blocks=6,
        max_host_seqs=2,
        prefix_caching=False,
        executor="exact",
    )
    began, both = list[int](), list[bool]()

    def look(rows: RowTable) -> None:
        first = rows.block_tiers[:, 0] == TIERS.index(Tier.HOST)
        began.append(int((first & (rows.num_host_blocks > 0))[rows.owned()].sum()))
        both.append(in_both(rows))

    served(setup, look, ((20, 12), (20, 12), (30, 18), (60, 4), (20, 8), (20, 8)))
    assert any(both)
    assert max(began) == 2


def test_what_the_host_cannot_hold_to_its_end_goes_on_on_the_device() -> None:
    """It would wait for ever: nobody is behind whose blocks would do."""
    served(replace(BESIDE, device_blocks=16, host_blocks=3), lambda rows: None)


@pytest.mark.parametrize(("host_blocks", "at_once"), [(16, 4), (6, 2)])
def test_who_is_too_long_for_the_device_holds_nobody_up_while_the_host_has_room(
    host_blocks: int, at_once: int
) -> None:
    """Two requests fill the device, of which the third would have a share; it goes to the host
    whole, and the fourth beside it, unless the host could not hold it to its end.
    """
    setup = replace(
        BESIDE, device_blocks=5, host_blocks=host_blocks, max_device_seqs=2, strategy="rendezvous"
    )
    beside = list[int]()

    def look(rows: RowTable) -> None:
        beside.append(len(rows.owned()))

    served(setup, look, ((20, 12), (20, 12), (90, 10), (20, 4)))
    assert max(beside[:6]) == at_once  # while the first two run


@pytest.mark.parametrize(("host_blocks", "split"), [(16, False), (6, True)])
def test_who_is_too_long_for_the_device_takes_no_share_of_it_where_whole_requests_are_planned(
    host_blocks: int, split: bool
) -> None:
    """Though it is free: others would lack it to its end. Unless the host could not hold it."""
    setup = replace(BESIDE, device_blocks=5, host_blocks=host_blocks, max_device_seqs=2)
    shared = list[bool]()

    def look(rows: RowTable) -> None:
        shared.append(in_both(rows))

    served(setup, look, ((90, 10), (20, 4)))
    assert any(shared) == split


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


@pytest.mark.parametrize(
    ("prices", "on_device"),
    [
        (None, 6),
        (round_prices(2, layer_s=1.0, device_key_s=0.01, host_key_s=0.03), 9),
        (round_prices(2, layer_s=1.0, device_key_s=0.03, host_key_s=0.01), 3),
        (round_prices(2, layer_s=1.0, device_key_s=0.0, host_key_s=0.0), 6),
    ],
)
def test_a_split_prompt_lies_where_both_tiers_attend_to_it_for_as_long(
    prices: StepPrices | None, on_device: int
) -> None:
    setup = Setup(
        strategy="ride-along",
        kv_placement="split",
        device_blocks=20,
        host_blocks=20,
        max_num_seqs=2,
        prices=prices,
    )
    with toy_engine(setup) as engine:
        engine.core.add_request(request(12 * setup.block_size))
        while not engine.scheduler.rows.num_host_blocks.any():
            engine.core.step()
        (row,) = engine.scheduler.rows.owned()
        assert len(engine.scheduler.rows.blocks(row, Tier.DEVICE)) == on_device
        drain(engine.core)


def test_corrected_prices_split_the_prompts_that_begin_from_then_on() -> None:
    setup = Setup(
        strategy="ride-along",
        kv_placement="split",
        device_blocks=20,
        host_blocks=20,
        max_num_seqs=2,
        prefix_caching=False,
        prices=round_prices(2, layer_s=1.0, device_key_s=0.01, host_key_s=0.03),
    )
    found: list[list[int]] = []
    with toy_engine(setup) as engine:
        scheduler = engine.scheduler
        for name in ("first", "second"):
            running = set(scheduler.rows.owned())
            asked = replace(request(12 * setup.block_size, 40), request_id=name)
            engine.core.add_request(asked)
            while set(scheduler.rows.owned()) == running:
                engine.core.step()
            rows = scheduler.rows
            found.append([len(rows.blocks(row, Tier.DEVICE)) for row in sorted(rows.owned())])
            scheduler._reprice(round_prices(2, layer_s=1.0, device_key_s=0.03, host_key_s=0.01))
        drain(engine.core)
    assert found == [[9], [9, 3]]


@pytest.mark.parametrize(("host_key_s", "renewed"), [(0.0301, False), (0.04, True)])
def test_a_split_is_renewed_where_prices_differ_by_much(host_key_s: float, renewed: bool) -> None:
    prices = round_prices(2, layer_s=1.0, device_key_s=0.01, host_key_s=0.03)
    config = SchedulerConfig(num_layers=2, max_model_len=4096, split_share=split_share(prices))
    corrected = round_prices(2, layer_s=1.0, device_key_s=0.01, host_key_s=host_key_s)
    found = renewed_split_share(config, corrected)
    assert (found is not config) == renewed
    assert found.split_share == pytest.approx(0.8 if renewed else 0.75)


@pytest.mark.parametrize(
    ("device_blocks", "host_blocks", "rows", "expected"),
    [
        (100, 1000, 50, 5),  # half: at nine of ten blocks each, 11 would fill the device, not 20
        (100, 1000, 16, 6),  # room for all that may run
        (100, 1000, 4, 9),
        (600, 400, 100, 6),  # so both fill together
    ],
)
def test_a_split_prompt_leaves_others_room_on_the_device(
    device_blocks: int, host_blocks: int, rows: int, expected: int
) -> None:
    config = SchedulerConfig(
        num_layers=2,
        max_model_len=4096,
        block_size=16,
        max_num_seqs=rows,
        kv_placement="split",
        split_share=0.9,
    )
    sequence = make_sequence(request(10 * 16), 0, config, (), 100)
    assert device_limit(sequence, config, BlockNeed(device_blocks, host_blocks)) == expected
