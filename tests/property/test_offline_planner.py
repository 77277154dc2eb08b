"""What must hold of every offline plan, over hardware, models and workloads."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled
from tests.unit.planner.questions import ask, short

from tandem.bench.offline.ablations import LEVERS, Ablation
from tandem.engine.sizing.block_memory import plan_block_memory
from tandem.engine.sizing.capacities import Capacities
from tandem.models.catalogue import plannable_spec
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.fluid.virtual_time import repeated_sweep
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BATCHES
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.occupancy import Occupancy
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Lengths, Question
from tandem.planner.sensitivity import larger_machines
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.workload import RequestShape, Workload

AUTO = OFFLINE_POLICIES["auto"]
MODELS = [
    short(plannable_spec(name), layers)
    for name, layers in (
        ("llama-3.1-8b", 4),
        ("opt-6.7b", 5),
        ("opt-30b", 6),
        ("gemma-3-27b", 6),
        ("qwen3-30b-a3b", 3),
    )
]


def few_bits(model: ModelSpec) -> Precision:
    kind = DType.FLOAT16
    return Precision(kind, kind, CodeType.INT4, uniform_formats(model, 4, None))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    model = draw(st.sampled_from(MODELS))
    question = ask(
        model,
        draw(st.sampled_from(["t4", "a10g", "rtx4090", "a100-40"])),
        draw(st.sampled_from(["g5.4xlarge", "desktop-ddr4", "lm-offload", "server-genoa"])),
        prompt=draw(st.sampled_from(["32", "300-900", "1500"])),
        generate=draw(st.sampled_from(["1", "8", "100-200"])),
        requests=draw(st.sampled_from([1, 3, 60, 400])),
    )
    if draw(st.booleans()):
        question = replace(question, precision=few_bits(model))
    share = draw(st.floats(0.03, 1.0))
    here = draw(st.sampled_from([1.0, 1.0, 0.1, 0.03]))
    return replace(
        question,
        device_bytes=int(question.device_bytes * share),
        host_bytes=int(question.host_bytes * here),
    )


@settings(max_examples=scaled(20))
@given(questions(), st.sampled_from(sorted(OFFLINE_POLICIES)), st.data())
def test_candidates_keep_to_capacities_policy_and_bounds(
    question: Question, name: str, data: st.DataObject
) -> None:
    search, policy = OfflineSearch(question), OFFLINE_POLICIES[name]
    found = list(search.candidates.of(policy))
    assume(found)
    dram = question.hardware.host.pool_bytes_per_s
    for candidate in data.draw(st.lists(st.sampled_from(found), min_size=1, max_size=3)):
        assert policy.allows(candidate, question.model.num_layers)
        adapts = data.draw(st.booleans())
        plan = offline_plan(search, candidate, adapts=adapts)  # refuses what does not fit or add up
        assert plan.batch_rows == candidate.rows
        assert plan.accelerator.free_bytes >= 0
        assert plan.host.free_bytes >= 0
        assert plan.block_rows < question.lengths.requests + plan.batches
        if candidate.quantized == "none":
            sizes = Capacities(question.device_bytes, question.host_bytes, real=True)
            precision = Precision.uniform(DType.FLOAT16)
            if candidate.device_kv is None:
                precision = replace(precision, host_kv=candidate.host_kv)
            else:
                precision = replace(precision, kv=candidate.device_kv)
            plan_block_memory(plan, question.model, precision, sizes)  # an engine has room for it
        times, bound = search.times, search.times.bound
        # the first passes find loads and reads there, which a disk that is nearly idle, or the
        # accelerator, may take many to use up: till then, they are shorter than many can be
        decode = repeated_sweep(times.decode_pass(candidate), dram, most_sweeps=500)
        prefill = repeated_sweep(times.prefill_pass(candidate), dram, most_sweeps=500)
        assert decode.period_s >= bound.decode_s(candidate) * (1 - 1e-6)
        assert prefill.period_s >= bound.prefill_s(candidate) * (1 - 1e-6)
        for time in (decode, prefill):
            assert time.accelerator_s <= time.period_s * (1 + 1e-6)
            assert time.dram_bytes <= time.period_s * dram * (1 + 1e-6)


@settings(max_examples=scaled(6))
@given(questions(), st.sampled_from(sorted(OFFLINE_POLICIES)))
def test_the_search_meets_candidates_in_the_order_of_their_bounds(
    question: Question, name: str
) -> None:
    search, policy = OfflineSearch(question), OFFLINE_POLICIES[name]
    bounds: dict[BlockCandidate, float] = {}
    for block in search.candidates.blocks(policy):
        promise = search.promises.tokens_per_s(block, policy)
        for start in search.candidates.starts(block, policy):
            closer = search.promises.of_start(start, policy)
            assert closer <= promise * (1 + 1e-9), start
            for candidate in search.candidates.of_start(start, policy):
                bounds[candidate] = search.bound_tokens_per_s(candidate)
                assert bounds[candidate] <= closer * (1 + 1e-9), candidate
    found = list(search.promising(policy))
    assert [bound for bound, _ in found] == sorted(bounds.values(), reverse=True)
    assert {candidate for _, candidate in found} == bounds.keys()


@st.composite
def stragglers(draw: st.DrawFn) -> Question:
    """Of whose sequences few are left for most of the passes."""
    lengths = st.tuples(st.integers(1, 4), st.integers(1, 600), st.integers(1, 200))
    groups = [*draw(st.lists(lengths, min_size=1, max_size=3))]
    groups.append((draw(st.integers(1, 60)), draw(st.integers(1, 60)), draw(st.integers(1, 3))))
    shapes = tuple(RequestShape(*each) for count, *each in groups for _ in range(count))
    lengths_of_all = Lengths.of(Workload("stragglers", shapes))
    return replace(draw(questions()), lengths=lengths_of_all)


@settings(max_examples=scaled(8))
@given(st.one_of(questions(), stragglers()), st.data())
def test_no_candidate_exceeds_the_ceiling(question: Question, data: st.DataObject) -> None:
    search = OfflineSearch(question)
    ceiling = BlockCeilings(question, search.times).ceiling()
    for policy in OFFLINE_POLICIES.values():
        found = list(search.candidates.of(policy))
        if not found:
            continue
        assert ceiling is not None
        for candidate in data.draw(st.lists(st.sampled_from(found), min_size=1, max_size=8)):
            assert search.bound_tokens_per_s(candidate) <= ceiling.tokens_per_s * (1 + 1e-6)


def _occupancy(generated: list[int]) -> Occupancy:
    """Of requests with so many tokens each."""
    shapes = tuple(RequestShape(8, count) for count in generated)
    return Occupancy(Lengths.of(Workload("any", shapes)))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_no_order_takes_fewer_passes_than_the_bound(
    generated: list[int], places: int, data: st.DataObject
) -> None:
    best = min(
        max(
            sum(generated[i] - 1 for i, at in enumerate(choice) if at == place)
            for place in range(places)
        )
        for choice in product(range(places), repeat=len(generated))
    )
    bound = _occupancy(generated).least_passes(places)
    assert max(generated) - 1 <= bound <= best
    more = [*generated, data.draw(st.integers(1, 30))]
    assert bound <= _occupancy(more).least_passes(places)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_more_places_have_no_fewer_sequences_in_a_pass(generated: list[int]) -> None:
    occupancy = _occupancy(generated)
    most = [occupancy.most_rows(places) for places in range(1, len(generated) + 1)]
    assert most == sorted(most)
    assert all(1 <= rows <= places + 1 for places, rows in enumerate(most))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 40), st.booleans())
def test_a_job_s_course_has_all_tokens_of_all_requests(
    generated: list[int], places: int, streams: bool
) -> None:
    occupancy = _occupancy(generated)
    course = occupancy.course(places, streams=streams)
    read, passed = (
        sum(alike.number * alike.rows for alike in each) for each in (course.fills, course.passes)
    )
    assert read == pytest.approx(len(generated))
    assert passed == pytest.approx(sum(generated) - len(generated))
    passes = sum(alike.number for alike in course.passes)
    assert passes >= occupancy.least_passes(places) - 1e-6
    if places >= len(generated):
        assert passes == max(generated) - 1
        assert course.fills == ((1, len(generated)),)


@settings(max_examples=scaled(4))
@given(questions())
def test_the_plan_is_at_least_as_good_as_every_policy_searched_by_itself(
    question: Question,
) -> None:
    best = OfflineSearch(question).best(AUTO)
    for policy in OFFLINE_POLICIES.values():
        option = OfflineSearch(question).best(policy)  # knows nothing of the plan
        if option is not None:
            assert best is not None, policy.name
            assert best.tokens_per_s >= option.tokens_per_s * (1 - 1e-6), policy.name


@settings(max_examples=scaled(6))
@given(questions(), st.sampled_from(LEVERS[1:]))
def test_the_plan_is_at_least_as_good_as_without_one_of_its_means(
    question: Question, lever: Ablation
) -> None:
    search = OfflineSearch(question)
    best = search.best(AUTO)
    without = OfflineSearch(question).best(lever.policy)  # knows nothing of the plan
    if without is not None:
        assert best is not None, lever.name
        assert best.tokens_per_s >= 0.99 * without.tokens_per_s, lever.name


@settings(max_examples=scaled(4))
@given(questions())
def test_more_of_a_resource_is_never_worse(question: Question) -> None:
    search = OfflineSearch(question)
    best = search.best(AUTO)
    if best is None:
        return
    for change, larger in larger_machines(question):
        again = OfflineSearch(larger)
        # the smaller machine's plan is a candidate; it does no worse there, nor does its bound
        for searched in (again, OfflineSearch(larger, like=search)):
            found = searched.best(AUTO, known=[best.candidate])
            assert found is not None, change
            assert found.tokens_per_s >= best.tokens_per_s * 0.99, change
        same = again.option(best.candidate).prediction
        assert same.rates.tokens_per_s >= best.tokens_per_s * 0.99, change
        assert same.bound_tokens_per_s >= best.prediction.bound_tokens_per_s * (1 - 1e-9), change


@settings(max_examples=scaled(4))
@given(questions())
def test_few_bits_only_where_they_are_allowed(question: Question) -> None:
    plain = replace(question, precision=Precision.uniform(DType.FLOAT16))
    best = OfflineSearch(plain).best(AUTO)
    if best is None:
        return
    assert (best.candidate.quantized, best.candidate.host_kv) == ("none", None)
    allowed = replace(plain, precision=few_bits(plain.model))
    found = OfflineSearch(allowed).best(AUTO)
    assert found is not None
    assert found.tokens_per_s >= best.tokens_per_s * 0.99


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "qwen3-30b-a3b"])
def test_grouped_queries_recompute_nothing(name: str) -> None:
    model = next(m for m in MODELS if m == short(plannable_spec(name), m.num_layers))
    search = OfflineSearch(ask(model, "a10g"))
    found = list(search.candidates.of(OFFLINE_POLICIES["kvpr"]))
    assert found
    assert not any(candidate.recomputed_tokens for candidate in found)


@settings(max_examples=scaled(8))
@given(questions(), st.data())
def test_no_other_placement_is_much_better(question: Question, data: st.DataObject) -> None:
    search = OfflineSearch(question)
    best = search.best(AUTO)
    assume(best is not None)
    assert best is not None
    layers = question.model.num_layers
    for _ in range(40):
        batches = data.draw(st.sampled_from(BATCHES))
        rows = -(-data.draw(st.sampled_from(search.candidates.sizes())) // batches)
        resident = data.draw(st.integers(0, rows))
        cpu = data.draw(st.integers(0, rows - resident))
        streamed = 2 * data.draw(st.integers(0, layers // 2))
        other = BlockCandidate(batches, streamed, resident, rows - resident - cpu, cpu)
        if streamed > STREAM_SLOTS and not question.model.dense_layers and data.draw(st.booleans()):
            lent = data.draw(st.integers(0, streamed - STREAM_SLOTS))
            other = replace(other, mlps=data.draw(st.booleans()), lent=lent)
        fits = search.candidates.possible(other, AUTO)
        if fits and search.bound_tokens_per_s(other) > best.tokens_per_s * 1.03:
            assert search.option(other).tokens_per_s <= best.tokens_per_s * 1.03, other
