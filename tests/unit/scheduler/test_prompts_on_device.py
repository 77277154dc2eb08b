"""Requests on the host that read their prompts on the device, from where their KV leaves."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.engines import toy_engine
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup

from tandem.scheduler.rows import RowState, RowTable
from tandem.scheduler.scheduler import Scheduler
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

READING = Setup(
    strategy="rendezvous",
    device_blocks=10,
    host_blocks=32,
    max_num_seqs=6,
    max_num_batched_tokens=32,
    max_host_seqs=3,
    max_device_seqs=1,
    prompts_on_device=True,
    prefix_caching=False,
    executor="exact",
)
"""A request on the device, and three in cohorts whose prompts of five blocks take two steps."""
LENGTHS = ((70, 12),) * 8
"""Tokens in and out."""


def request(number: int, num_prompt: int, max_tokens: int) -> EngineRequest:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    prompt = tuple((3 * i + number) % 45 + 1 for i in range(num_prompt))
    return EngineRequest(f"r{number}", prompt, params)


def served(
    setup: Setup,
    on_step: Callable[[RowTable], None],
    lengths: tuple[tuple[int, int], ...] = LENGTHS,
) -> Scheduler:
    """Serve requests, and look at every step.

    Raises:
        AssertionError: other tokens than with ample memory, a block that is left, or no end.
    """
    requests = [request(number, *each) for number, each in enumerate(lengths)]
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


@pytest.mark.parametrize("executor_seed", range(4))
@pytest.mark.parametrize(
    "strategy", ["ride-along", "rendezvous", "rendezvous-ahead", "asymmetric", "symmetric"]
)
def test_no_prompt_is_read_on_the_host_and_who_has_left_decodes_there(
    strategy: str, executor_seed: int
) -> None:
    hosted = list[int]()

    def look(rows: RowTable) -> None:
        owned = rows.owned()
        reading = owned[rows.submitted[owned] < rows.prompt[owned]]
        assert not rows.num_host_blocks[reading].any()
        running = owned[rows.state[owned] == int(RowState.RUNNING)]
        hosted.append(int((rows.num_host_blocks[running] > 0).sum()))

    setup = replace(READING, strategy=strategy, executor_seed=executor_seed)
    scheduler = served(setup, look)
    assert max(hosted) > 1
    assert not scheduler.running.num_preemptions


def test_all_of_a_request_leaves_and_its_room_is_read_in_again() -> None:
    left = set[str]()

    def look(rows: RowTable) -> None:
        for row in rows.owned():
            if rows.num_host_blocks[row]:
                assert rows.num_host_blocks[row] == rows.num_blocks[row]
                assert rows.device_limit[row] == 0
                left.add(str(rows.request_ids[row]))

    served(READING, look)
    # the device has room for two prompts at once
    assert len(left) > 2


def test_a_plan_whose_requests_are_all_on_the_host_reads_on_the_device_as_well() -> None:
    setup = replace(READING, kv_placement="host", max_host_seqs=0, max_device_seqs=0)

    def look(rows: RowTable) -> None:
        owned = rows.owned()
        assert not rows.num_host_blocks[owned[rows.submitted[owned] < rows.prompt[owned]]].any()

    served(setup, look)


@pytest.mark.parametrize("device_blocks", [0, 4])
def test_where_the_device_never_has_room_for_a_prompt_it_is_read_on_the_host(
    device_blocks: int,
) -> None:
    on_device = list[int]()

    def look(rows: RowTable) -> None:
        owned = rows.owned()
        on_device.append(int((rows.num_blocks - rows.num_host_blocks)[owned].sum()))

    setup = replace(READING, kv_placement="host", device_blocks=device_blocks)
    served(setup, look)
    assert not any(on_device)


@pytest.mark.parametrize("executor_seed", range(3))
def test_until_the_host_has_room_who_has_read_goes_on_on_the_device(executor_seed: int) -> None:
    """The host holds one request of two that decode for long; the second one's blocks wait."""
    both = list[bool]()

    def look(rows: RowTable) -> None:
        owned = rows.owned()
        stays = rows.leaves[owned] & (rows.submitted[owned] > rows.prompt[owned])
        both.append(bool(stays.any()))

    setup = replace(
        READING,
        kv_placement="host",
        device_blocks=16,
        host_blocks=11,
        max_num_batched_tokens=256,
        executor_seed=executor_seed,
    )
    # all are admitted at once; the first to leave take what the last one would need
    served(setup, look, ((70, 60), (40, 40), (40, 20)))
    assert any(both)


@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous", "symmetric"])
def test_room_on_the_host_is_no_use_before_the_prompt_has_been_read(strategy: str) -> None:
    """One that decodes grows into what the prompt of a better one would need, which is read in
    pieces: the prompt takes it back, though the host is empty.
    """
    setup = replace(
        READING, strategy=strategy, device_blocks=9, max_num_batched_tokens=8, max_host_seqs=2
    )
    better = replace(request(1, 120, 6), priority=-1)
    script = Script({0: [request(0, 14, 120)], 6: [better]})
    with toy_engine(setup) as engine:
        results = run(engine.core, script, steps=max_steps(script, 2))
        engine.check_idle()
        assert engine.stats.preemptions == 1
    assert [len(each.token_ids) for each in results.values()] == [120, 6]


def test_what_the_host_has_cached_is_not_read_again() -> None:
    """The same prompt twice: the second time its blocks are shared where they lie."""
    setup = replace(READING, prefix_caching=True, kv_placement="host", max_num_seqs=2)
    first, second = request(0, 70, 6), replace(request(0, 70, 6), request_id="again")
    with toy_engine(setup) as engine:
        rows, reads = engine.scheduler.rows, dict[str, bool]()
        for each in (first, second):
            engine.core.add_request(each)
            while engine.core.has_work():
                engine.core.step()
                for row in rows.owned():
                    name = str(rows.request_ids[row])
                    reads[name] = reads.get(name, False) or bool(rows.leaves[row])
        engine.check_idle()
        assert reads == {"r0": True, "again": False}
        assert engine.scheduler.cached_prompt_tokens == 64


def test_a_request_that_ends_or_is_aborted_while_it_leaves_leaves_nothing() -> None:
    with toy_engine(READING) as engine:
        for number in range(6):
            engine.core.add_request(request(number, 70, 40))
        rows, aborted = engine.scheduler.rows, 0
        while engine.core.has_work():
            engine.core.step()
            for row in engine.scheduler.view().in_state(RowState.SWAPPING_OUT).tolist():
                engine.core.abort(str(rows.request_ids[row]))
                aborted += 1
            engine.scheduler.check()
        engine.check_idle()
    assert aborted
