"""Offline plans of known cases, against sums done by hand and the papers' formulas."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from tests.support.profiles import accelerator_measurements
from tests.unit.planner.questions import ask, short

from tandem.cost.kvpr.recompute import KVFetch, RecomputeRates, best_recompute
from tandem.cost.park_egger.split_cost import split_cost
from tandem.models.catalogue import plannable_spec
from tandem.plan.block_shape import CACHE_SLOTS
from tandem.plan.offline import OfflinePlan
from tandem.plan.program import OpKind, Part, Queue
from tandem.planner.fluid.virtual_time import steady_sweep
from tandem.planner.offline.answer import offline_answer, offline_plan, recomputation
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.policies import OFFLINE_POLICIES, find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.times import PassOrder
from tandem.planner.offline.work import operation
from tandem.planner.policies import POLICIES, find_policy
from tandem.planner.question import Question
from tandem.profiling.measurements import CodeRates
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.operations import Stage
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.units import GIB, MIB
from tandem.spec.workload import RequestShape

OPT = short(plannable_spec("opt-6.7b"), 8)
LAYER_BYTES = 12 * 4096**2 * 2
TOKEN_BYTES = 2 * 4096 * 2  # keys and values of one token in one layer


def offloaded(**changes: object) -> Question:
    """A model whose layers come over a link of 24 GB/s, and whose KV lies on the host."""
    question = ask(OPT, "a10g", "server-genoa", prompt="512", generate="65", requests=64)
    return replace(question, **changes)


@pytest.mark.parametrize("window", [0, 128])
def test_a_streamed_pass_takes_what_its_bytes_take_on_the_link(window: int) -> None:
    """Those of whole contexts, as blocks are copied, also where layers see less of them."""
    search = OfflineSearch(offloaded(model=replace(OPT, windows=(window,) * OPT.num_layers)))
    passed = {}
    for batches in (1, 4):
        candidate = BlockCandidate(batches, 8, 0, 16, 0)
        weights_s = 8 * LAYER_BYTES / 24e9
        tokens = 576  # 544 in the mean, whole blocks of 64
        kv_s = 8 * batches * 16 * tokens * TOKEN_BYTES / 24e9
        passed[batches] = search.times.time(candidate).decode.period_s
        assert passed[batches] == pytest.approx(weights_s + kv_s, rel=0.02)
    # weights come once for all batches
    assert passed[4] < 4 * passed[1] * 0.9


def test_passes_compute_whole_tiles_and_bounds_do_not_know_of_them() -> None:
    """80 rows take the accelerator what 128 do, however few of them are moved."""
    plain = offloaded()
    card = replace(plain.hardware.accelerator, tile_rows=64)
    tiled = replace(plain, hardware=replace(plain.hardware, accelerator=card))
    searches = [OfflineSearch(question) for question in (plain, tiled)]
    block = BlockCandidate(1, 0, 80, 0, 0)
    stage = operation((OpKind.STAGE, Queue.ACCEL, Part.POST), 0)
    times = [
        [prices.decode(replace(block, resident_rows=rows))(stage).alone_s for rows in (80, 128)]
        for prices in (search.times.prices for search in searches)
    ]
    assert times[1][1] == times[0][1] > times[0][0]
    assert times[1][0] == times[1][1]
    least = [search.times.prices.least_decode(block)(stage).alone_s for search in searches]
    assert least[0] == least[1] == times[0][0]
    longer = [search.times.time(block).decode.period_s for search in searches]
    assert longer[1] > 1.05 * longer[0]
    assert searches[0].bound_tokens_per_s(block) == searches[1].bound_tokens_per_s(block)


@pytest.mark.parametrize(
    "candidate",
    [
        BlockCandidate(2, 4, 0, 1, 7),
        BlockCandidate(1, 15, 8, 0, 8, mlps=True, lent=6),
    ],
    ids=["streamed beside the CPU", "MLPs lent to the CPU"],
)
def test_a_pass_takes_as_long_as_one_of_many(candidate: BlockCandidate) -> None:
    """The second took 4 and 5% less, since loads were ahead of it."""
    question = ask("llama-2-13b", "rtx4090", prompt="512", generate="128", requests=16)
    times = OfflineSearch(question).times
    found, passed = times.time(candidate).decode, times.decode_pass(candidate)
    pool = question.hardware.host.pool_bytes_per_s
    many = steady_sweep([passed] * 16, pool, cycle=8)
    assert found.period_s == pytest.approx(many.period_s, rel=1e-3)
    assert steady_sweep([passed] * 2, pool).period_s < 0.97 * many.period_s


def test_keys_and_values_maps_come_first_where_that_is_shorter() -> None:
    times = OfflineSearch(offloaded()).times
    prefix = BlockCandidate(1, 8, 0, 64, 0, recomputed_tokens=256)
    assert times.order(prefix) == PassOrder(weights_in_parts=True)
    passed = times.each_operation(prefix)[0]
    loads: Counter[Part] = Counter()
    for op, demand in zip(passed.schedule.ops, passed.demands, strict=True):
        if op.kind is OpKind.LOAD:
            loads[op.part] += round(demand.alone_s * 24e9)
    maps = 8 * 4096**2 * 2
    assert loads[Part.KEYS_VALUES] == pytest.approx(2 * maps, rel=0.01)
    assert loads[Part.QUERIES] == pytest.approx(maps, rel=0.01)
    assert loads.total() == pytest.approx(8 * LAYER_BYTES, rel=0.01)
    # the CPU waits for queries; what stays does not come; nothing is recomputed
    for other in (
        replace(prefix, streamed_rows=32, cpu_rows=32),
        replace(prefix, streamed=2),
        replace(prefix, recomputed_tokens=0),
    ):
        assert times.order(other) == PassOrder()


def slow_cores(question: Question, bytes_per_s: float) -> Question:
    """Cores that read so much, of memory that gives the link as much as it likes beside them."""
    host = replace(
        question.hardware.host,
        memory_bandwidth_bytes_per_s=bytes_per_s,
        shared_memory_bandwidth_bytes_per_s=200e9,
    )
    return replace(question, hardware=replace(question.hardware, host=host))


def test_the_link_carries_weights_while_batches_wait_for_the_cpu() -> None:
    search = OfflineSearch(slow_cores(offloaded(), 20e9))
    time = search.times.time(BlockCandidate(4, 8, 0, 0, 16)).decode
    attended_s = 8 * 4 * 16 * 545 * TOKEN_BYTES / 20e9
    assert time.cpu_s == pytest.approx(attended_s, rel=0.01)
    assert time.h2d_s > 8 * LAYER_BYTES / 24e9
    assert time.period_s < 1.1 * max(time.cpu_s, time.h2d_s)


def test_one_batch_s_layers_are_a_chain_over_the_cpu_and_several_hide_it() -> None:
    search = OfflineSearch(slow_cores(offloaded(), 50e9))
    alone, four = (search.times.time(BlockCandidate(n, 0, 0, 0, 16)).decode for n in (1, 4))
    assert alone.period_s > alone.cpu_s + 0.9 * alone.accelerator_s
    assert four.period_s < four.cpu_s + 0.5 * four.accelerator_s


def test_kv_divided_between_link_and_cpu_beats_either() -> None:
    search = OfflineSearch(slow_cores(offloaded(), 24e9))
    streamed, attended, both = (
        search.option(BlockCandidate(4, 0, 0, *rows)).tokens_per_s
        for rows in ((16, 0), (0, 16), (8, 8))
    )
    assert both > 1.5 * max(streamed, attended)
    best = search.best(OFFLINE_POLICIES["auto"])
    assert best is not None
    assert best.tokens_per_s >= both


def test_kvpr_recomputes_as_far_as_its_equation_says() -> None:
    question = offloaded(device_bytes=4 * GIB)
    search = OfflineSearch(question)
    best = search.best(OFFLINE_POLICIES["kvpr"])
    assert best is not None
    found = best.candidate
    rates = RecomputeRates(24e9, 70e12 * 0.7)
    fetch = KVFetch(found.streamed_rows, 544, 4096, 4096)
    ideal = best_recompute(fetch, rates, 64).tokens
    assert found.recomputed_tokens >= ideal - 64
    without = replace(found, recomputed_tokens=0)
    passes = [search.times.time(each).decode.period_s for each in (without, found)]
    assert passes[1] < 0.9 * passes[0]
    assert "are recomputed from activations" in recomputation(search, found)


def test_a_prefix_of_activations_takes_half_of_its_keys_and_values() -> None:
    footprint = OfflineSearch(offloaded()).footprint
    plain, prefixed = (
        footprint.host(BlockCandidate(1, 0, 0, 10, 0, tokens), prompts_on_host=False)
        for tokens in (0, 256)
    )
    assert plain.kv == 8 * 10 * 576 * TOKEN_BYTES
    assert plain.kv - prefixed.kv == 8 * 10 * 256 * TOKEN_BYTES // 2


@pytest.mark.parametrize("policy", ["kvpr", "zero-inference-stream"])
def test_grouped_queries_recompute_nothing_and_the_answer_says_why(policy: str) -> None:
    model = short(plannable_spec("llama-3.1-8b"), 8)
    found = offline_answer(ask(model, "a10g"), policy)
    assert found.chosen.candidate.streamed_rows > 0
    assert found.chosen.candidate.recomputed_tokens == 0
    assert "grouped queries leave nothing to save" in found.recomputation
    assert found.plan.notes[0] == found.recomputation


def on_a_small_card(**changes: object) -> Question:
    """Of whose KV nearly all is attended on the CPU."""
    model = short(plannable_spec("llama-3.1-8b"), 8)
    question = ask(model, "t4", prompt="1024", generate="128", requests=100)
    return replace(question, device_bytes=int(4.3 * GIB), **changes)


def planned_shares(question: Question) -> OfflinePlan:
    search, policy = OfflineSearch(question), find_offline_policy("auto")
    option = search.shortlisted(policy)
    assert option is not None
    return offline_plan(search, option.candidate, adapts=True)


def test_what_may_come_to_be_streamed_is_pinned_and_no_more() -> None:
    """All KV on the host was pinned once, though hardly any of it can come to be streamed."""
    plan = planned_shares(on_a_small_card())
    assert plan.terms is not None
    assert plan.terms.most_pinned_rows is not None
    assert plan.cpu_rows > 20 * plan.streamed_rows
    assert plan.streamed_rows < plan.terms.most_pinned_rows <= plan.terms.most_streamed_rows
    assert plan.terms.most_pinned_rows <= plan.streamed_rows + plan.host_rows / 8 + 1
    assert 0 < plan.pinned_host_blocks < 0.1 * plan.host_blocks
    weights = plan.host.weights_bytes
    assert weights < plan.host.pinned_bytes < weights + 0.1 * plan.host.kv_bytes


def test_pinned_memory_is_bounded_as_the_user_says() -> None:
    free = planned_shares(on_a_small_card())
    most = free.host.pinned_bytes - 1
    plan = planned_shares(on_a_small_card(pinned_bytes=most))
    assert plan.host.pinned_bytes <= most == plan.most_pinned_bytes
    assert plan.host_rows
    with pytest.raises(ConfigError, match="raise --pinned-memory"):
        offline_answer(on_a_small_card(pinned_bytes=1000), "flexgen")


@pytest.mark.parametrize(
    ("policy", "disk"), [("kvpr", None), ("kvpr", 2e9), ("auto", None), ("auto", 2e9)]
)
def test_the_least_that_must_be_pinned_is_named_and_enough(policy: str, disk: float | None) -> None:
    """Layers went to disk for the host's memory only, never for what may be pinned."""
    plain = offloaded(device_bytes=2 * GIB, pinned_bytes=1000)
    host = replace(plain.hardware.host, disk_bytes_per_s=disk)
    question = replace(plain, hardware=replace(plain.hardware, host=host))
    with pytest.raises(ConfigError, match=r"of which 1000 B may be; raise --pinned") as raised:
        offline_answer(question, policy)
    (named,) = re.findall(r"raise --pinned-memory to (\d+)MiB$", str(raised.value))
    assert "--gpu-memory" not in str(raised.value)
    least = int(named) * MIB
    found = offline_answer(replace(question, pinned_bytes=least), policy)
    assert least - MIB < found.plan.host.pinned_bytes <= least
    assert (found.chosen.candidate.on_disk > 0) == (disk is not None)
    with pytest.raises(ConfigError, match=f"raise --pinned-memory to {named}MiB"):
        offline_answer(replace(question, pinned_bytes=least - MIB), policy)


def test_what_the_cpu_attends_to_is_not_pinned() -> None:
    footprint = OfflineSearch(offloaded()).footprint
    there = footprint.host(BlockCandidate(2, 4, 0, 0, 10), prompts_on_host=False)
    kv = 8 * 2 * 10 * 576 * TOKEN_BYTES
    assert (there.weights, there.kv) == (4 * LAYER_BYTES, kv)
    assert there.weights <= there.pinned < there.weights + 0.01 * kv


def quantized() -> Question:
    kind = DType.FLOAT16
    precision = Precision(kind, kind, CodeType.INT4, uniform_formats(OPT, 4, None))
    return offloaded(precision=precision, device_bytes=3 * GIB)


def test_few_bits_that_are_allowed_are_used_where_they_pay() -> None:
    plain = offline_answer(offloaded(device_bytes=3 * GIB), "lm-offload")
    found = offline_answer(quantized(), "lm-offload")
    assert found.chosen.tokens_per_s > plain.chosen.tokens_per_s
    assert (plain.plan.quantized_layers, plain.plan.host_kv_dtype) == ("none", "float16")
    assert found.plan.quantized_layers != "none"
    assert found.plan.quantization.startswith("int4:")
    assert found.plan.kv_dtype == "float16"


def test_streamed_kv_in_few_bits_takes_less_of_the_link_and_nothing_else() -> None:
    """Kernels read codes out of slots: a pass that dequantizes, and a buffer for what it makes,
    were charged, and no engine has either.
    """
    search = OfflineSearch(quantized())
    plain = BlockCandidate(2, 0, 0, 8, 0)
    few = replace(plain, host_kv=CodeType.INT4)
    one, another = (search.times.time(each).decode for each in (plain, few))
    assert another.h2d_s < 0.4 * one.h2d_s
    assert another.accelerator_s == pytest.approx(one.accelerator_s)
    footprint = search.footprint
    sizes = [footprint.device(each, prompts_on_host=False).slots for each in (plain, few)]
    pages = [footprint.host_page(each).bytes_per_block_layer for each in (plain, few)]
    blocks = footprint.slot_blocks(few)
    assert sizes[0] - sizes[1] == CACHE_SLOTS * blocks * (pages[0] - pages[1])


def test_a_measured_card_quantizes_prompts_for_slots_at_its_measured_rate() -> None:
    card = accelerator_measurements()
    question = quantized()
    few = BlockCandidate(2, 0, 0, 8, 0, host_kv=CodeType.INT4)
    elements = few.batches * few.streamed_rows * 512 * 2 * OPT.kv_size
    found: list[tuple[float, float]] = []
    for quantize, dequantize in ((300e9, 300e9), (300e9, 30e9), (30e9, 300e9)):
        codes = (CodeRates("kv int4", quantize, dequantize),)
        attention = (*card.attention, replace(card.attention[0], kind="int4"))
        prompts = (*card.prompts, replace(card.prompts[0], kind="int4"))
        measured = replace(card, codes=codes, attention=attention, prompts=prompts)
        search = OfflineSearch(replace(question, measured_card=measured))
        time = search.times.time(few)
        found.append((time.prefill.accelerator_s, time.decode.accelerator_s))
    assert found[0] == found[1]
    slower_s = OPT.num_layers * elements * 2 * (1 / 30e9 - 1 / 300e9)
    assert found[2][0] - found[0][0] == pytest.approx(slower_s, rel=0.01)
    assert found[2][1] == found[0][1]


def test_blocks_divide_the_job_evenly() -> None:
    search = OfflineSearch(offloaded())
    candidate = BlockCandidate(2, 0, 0, 16, 0)
    rates = search.option(candidate).prediction.rates
    assert rates.blocks == 2
    # the second one's prompts wait for keys and values that came for a pass more
    ahead_s = search.times.bound.ahead_s(candidate)
    assert 0 < ahead_s < rates.pass_s / 2
    assert rates.job_s == pytest.approx(2 * rates.block_s + ahead_s)
    assert rates.tokens_per_s == pytest.approx(64 * 65 / rates.job_s)
    assert rates.block_s == pytest.approx(rates.prefill_s + 64 * rates.pass_s)


def test_a_long_request_s_last_passes_bring_the_weights_for_it_alone() -> None:
    """All in one block: it takes as many passes as the longest request, not as the mean one."""
    alike = offloaded()
    shapes = (*(RequestShape(512, 61) for _ in range(48)), *(RequestShape(512, 77),) * 16)
    unlike = replace(alike, lengths=replace(alike.lengths, shapes=shapes))
    candidate = BlockCandidate(4, 8, 16, 0, 0)
    rates = {
        len(question.lengths.shapes): OfflineSearch(question).option(candidate).prediction.rates
        for question in (replace(alike, lengths=replace(alike.lengths, shapes=())), unlike)
    }
    assert rates[0].tail_s == 0
    weights_s = 8 * LAYER_BYTES / 24e9
    assert rates[64].tail_s == pytest.approx((77 - 65) * weights_s, rel=0.02)
    assert rates[64].job_s == pytest.approx(rates[0].job_s + rates[64].tail_s)
    assert rates[64].tokens_per_s == pytest.approx(64 * 65 / rates[64].job_s)


def test_prompts_activations_go_to_the_host_where_the_accelerator_has_no_room() -> None:
    question = offloaded(device_bytes=5 * GIB)
    search = OfflineSearch(replace(question, lengths=replace(question.lengths, requests=4000)))
    large = BlockCandidate(16, 4, 0, 0, 64)
    assert search.footprint.prompts_on_host(large)
    assert not search.footprint.prompts_on_host(replace(large, batches=1, cpu_rows=8))
    away = search.times.prefill_pass(large).schedule
    assert {op.part.value for op in away.ops} >= {"residual", "cache"}


def test_activations_of_a_batch_are_on_their_way_while_others_of_it_are_computed() -> None:
    """An engine takes a batch's prompts through a layer in parts."""
    question = offloaded(device_bytes=5 * GIB)
    search = OfflineSearch(replace(question, lengths=replace(question.lengths, requests=4000)))
    whole = BlockCandidate(1, 4, 0, 0, 1024)
    assert search.footprint.prompts_on_host(whole)
    prefill_s = search.times.time(whole).prefill.period_s
    assert prefill_s == pytest.approx(search.times.bound.prefill_s(whole), rel=0.02)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host_only": True}, "without one, leave it out"),
        ({"objective": "latency"}, "nobody waits for a single answer"),
        ({"tpot_bound_s": 0.1}, "nobody waits for a single answer"),
        ({"device_bytes": GIB}, r"no block of requests fits: with all layers streamed"),
        ({"host_bytes": 0, "device_bytes": 2 * GIB}, "raise --gpu-memory or --cpu-memory"),
    ],
)
def test_what_cannot_be_planned_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        offline_answer(offloaded(**changes))


@pytest.mark.parametrize("name", [name for name in OFFLINE_POLICIES if name not in POLICIES])
def test_an_offline_policy_is_refused_online(name: str) -> None:
    with pytest.raises(ConfigError, match="which tandem plan --offline plans; use one of: auto"):
        find_policy(name)


@pytest.mark.parametrize("name", ["gpu-only", "best"])
def test_other_policies_are_refused_offline(name: str) -> None:
    with pytest.raises(ConfigError, match=r"use one of: auto, zero-inference") as error:
        offline_answer(offloaded(), name)
    assert error.value.param == "policy"


def test_park_and_egger_share_out_attention_in_eighths() -> None:
    """Where link and CPU take about equally long for KV, so that pieces of it pay."""
    asked = ask(OPT, "a10g", "server-genoa", prompt="512", generate="65", requests=256)
    question = slow_cores(asked, 24e9)
    found = offline_answer(question, "park-egger")
    candidate = found.chosen.candidate
    assert (candidate.streamed, candidate.resident_rows, candidate.mlps) == (8, 0, False)
    assert candidate.cpu_rows
    assert candidate.streamed_rows
    assert candidate.cpu_rows in {round(candidate.rows * n / 8) for n in range(9)}
    assert found.chosen.tokens_per_s <= offline_answer(question).chosen.tokens_per_s


def test_park_and_eggers_own_search_is_told_beside_it() -> None:
    question = offloaded()
    found = offline_answer(question, "park-egger")
    assert found.split is not None
    assert str(found.split) in found.plan.notes
    candidate, own = found.chosen.candidate, found.split
    assert [op.name for op in own.operations if op.name.startswith("Scores")] == [
        f"Scores.{n}" for n in range(8)
    ]
    for start in range(len(own.operations) + 1):
        for end in range(start, len(own.operations) + 1):
            cost = split_cost(own.operations, Stage(start, end), batches=candidate.batches)
            assert own.split.cost.latency_s <= cost.latency_s * (1 + 1e-6)
    # of the link, a layer's weights are the least that it carries
    whole = sum(op.weight_link_s for op in own.operations)
    assert whole == pytest.approx(LAYER_BYTES / 24e9, rel=0.05)
    assert offline_answer(question, "flexgen").split is None


def test_a_job_without_a_pass_keeps_no_kv_on_the_host() -> None:
    """Half of it was planned to be attended on the CPU, which never happens."""
    question = ask(plannable_spec("gemma-2-9b"), "rtx4090", "server-genoa",
                   prompt="512", generate="1", requests=64)  # fmt: skip
    question = replace(question, model=short(question.model, 8), device_bytes=5 * GIB)
    search, policy = OfflineSearch(question), find_offline_policy("auto")
    best = search.best(policy)
    assert best is not None
    assert search.simplest(policy, best).candidate.host_rows == 0
    assert search.simplest(policy, best).tokens_per_s > 0.98 * best.tokens_per_s


def test_alternatives_that_differ_by_a_sequence_are_shown_once() -> None:
    question = ask(short(plannable_spec("llama-3.1-70b"), 8), "rtx4090", "server-genoa",
                   prompt="512", generate="128", requests=16)  # fmt: skip
    search, policy = (
        OfflineSearch(replace(question, device_bytes=8 * GIB)),
        find_offline_policy("auto"),
    )
    chosen = search.option(BlockCandidate(1, 8, 3, 0, 13))
    for resident, streamed, cpu in ((2, 1, 13), (3, 1, 12), (0, 2, 14)):
        search.option(BlockCandidate(1, 8, resident, streamed, cpu))
    found = [each.candidate for each in search.alternatives(policy, replace(chosen))]
    assert BlockCandidate(1, 8, 2, 1, 13) not in found
    assert BlockCandidate(1, 8, 3, 1, 12) not in found
