"""Batches by rows and by columns (ADR 0082)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.block_order import ORDERS, BlockOrder, parse_orders
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.virtual_time import steady_sweep
from tandem.planner.offline.answer import compare_offline, offline_answer
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import OFFLINE_POLICIES, find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question
from tandem.spec.errors import ConfigError
from tandem.spec.units import GIB

OPT = short(plannable_spec("opt-6.7b"), 8)
QUESTION = ask(OPT, "a10g", "server-genoa", prompt="512", generate="65", requests=64)
CONTEXTS = (512.0, 576.0, 640.0)
WAYS = (
    BlockCandidate(1, 8, 16, 0, 0),
    BlockCandidate(1, 8, 0, 16, 0, recomputed_tokens=256),
    BlockCandidate(1, 8, 4, 6, 6),
    BlockCandidate(1, 0, 16, 0, 0),
    BlockCandidate(1, 8, 16, 0, 0, lent=4),
    BlockCandidate(1, 8, 0, 8, 8, columns=2048, attention_maps=True),
)


def seconds(search: OfflineSearch, batch: BlockCandidate, contexts: Sequence[float]) -> float:
    """Of passes over one batch each, at these contexts, one after the other."""
    times, schedule = search.times, search.times.decode_pass(batch).schedule

    def passed(context: float) -> PricedSweep:
        price = times.prices_at(context).decode(batch)
        return PricedSweep(schedule, tuple(price(op) for op in schedule.ops))

    first, last = passed(contexts[0]), passed(contexts[-1])  # before and behind all of them
    passes = [first, first, first, *map(passed, contexts), last]
    memory = search.question.hardware.host.pool_bytes_per_s
    counted = len(contexts) + 1
    both_ways = search.question.link_both_ways
    return steady_sweep(passes, memory, None, counted, both_ways).period_s * counted


@pytest.mark.parametrize("batch", WAYS, ids=lambda way: way.describe(8))
def test_two_batches_by_rows_take_as_long_in_any_order_of_their_passes(
    batch: BlockCandidate,
) -> None:
    """Alternating token by token, or one to its end and then the other, or any of the 20 ways."""
    search, orders = OfflineSearch(QUESTION), set[tuple[float, ...]]()
    waves = seconds(search, batch, CONTEXTS * 2)
    for chosen in combinations(range(6), 3):
        left = [iter(CONTEXTS), iter(CONTEXTS)]
        order = tuple(next(left[place in chosen]) for place in range(6))
        orders.add(order)
        assert seconds(search, batch, order) == pytest.approx(waves, rel=1e-9)
    assert (512, 512, 576, 576, 640, 640) in orders
    longer = seconds(search, batch, (*CONTEXTS, 576, 640, 640))
    assert (longer > waves) == (not batch.lent)  # where the CPU computes layers, it sets the pace


@pytest.mark.parametrize("batch", WAYS, ids=lambda way: way.describe(8))
def test_one_batch_to_its_end_takes_less_memory_than_two_that_alternate(
    batch: BlockCandidate,
) -> None:
    footprint, two = OfflineSearch(QUESTION).footprint, replace(batch, batches=2)
    for memory in (footprint.device, footprint.host):
        one_bytes = memory(batch, prompts_on_host=False).total
        assert one_bytes <= memory(two, prompts_on_host=False).total
    kept = footprint.device_blocks(batch) + footprint.host_blocks(batch)
    assert kept < footprint.device_blocks(two) + footprint.host_blocks(two)


def small_job(**changes: object) -> Question:
    """Of which either order fits, in several blocks."""
    card = replace(QUESTION, device_bytes=3 * GIB, host_bytes=8 * GIB)
    return replace(card, **changes)


@pytest.mark.parametrize("order", ORDERS)
def test_all_of_an_answer_keeps_to_an_order(order: BlockOrder) -> None:
    found = offline_answer(small_job(), compare=True, order=order)
    assert found.chosen.candidate.order == order
    assert (found.plan.batches == 1) == (order == "rows")
    options = [
        *found.alternatives,
        *(entry.option for entry in found.sensitivities),
        *(result.option for result in found.policies if result.option is not None),
    ]
    assert {option.candidate.order for option in options} == {order}
    names = {result.policy.name for result in found.policies}
    alone = {"zero-inference", "zero-inference-stream"}  # run batches by rows, as published
    assert names == {*OFFLINE_POLICIES} - (alone if order == "columns" else set())


def test_either_order_wins_somewhere_and_auto_is_as_good_and_none_exceeds_the_bound() -> None:
    chosen: set[BlockOrder] = set()
    for question in (small_job(), small_job(device_bytes=QUESTION.device_bytes)):
        search = OfflineSearch(question)
        auto = search.best(find_offline_policy("auto"))
        ceiling = BlockCeilings(question, search.times).ceiling()
        assert auto is not None
        assert ceiling is not None
        chosen.add(auto.candidate.order)
        for order in ORDERS:
            policy = find_offline_policy("auto").within((order,))
            assert policy is not None
            best = OfflineSearch(question).best(policy)
            assert best is not None
            assert best.tokens_per_s <= min(auto.tokens_per_s * 1.01, ceiling.tokens_per_s)
    assert chosen == {*ORDERS}


def test_policies_are_compared_in_all_their_orders_by_default() -> None:
    results = compare_offline(OfflineSearch(small_job()))
    assert [result.policy for result in results] == [*OFFLINE_POLICIES.values()]


def test_others_are_compared_in_their_own_orders_not_in_those_of_the_chosen_policy() -> None:
    found = offline_answer(small_job(), "zero-inference", compare=True)
    assert found.policy.orders == ("rows",)
    expected = {name: policy.orders for name, policy in OFFLINE_POLICIES.items()}
    assert {result.policy.name: result.policy.orders for result in found.policies} == expected


def test_an_order_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown order 'diagonal'; use one of: auto, rows, col"):
        parse_orders("diagonal")
    with pytest.raises(ConfigError, match="'zero-inference' go by rows alone; leave --order col"):
        offline_answer(small_job(), "zero-inference", order="columns")
    one = replace(QUESTION.lengths, requests=1)
    with pytest.raises(ConfigError, match="one request makes no two batches"):
        offline_answer(small_job(lengths=one), order="columns")
    with pytest.raises(ConfigError, match="one in each of two batches take"):
        offline_answer(small_job(device_bytes=1 << 20), order="columns")
    with pytest.raises(ConfigError, match="streamed, from disk, one takes"):
        offline_answer(small_job(device_bytes=1 << 20), order="rows")
