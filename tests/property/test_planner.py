"""What must hold of every plan, over hardware, models and workloads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled
from tests.unit.planner.questions import ask, short, with_dense

from tandem.models.catalogue import plannable_spec
from tandem.planner.glance import Glances
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.options import AS_FAST
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import STEP_SIZES
from tandem.planner.sensitivity import larger_machines
from tandem.planner.sweeps import Sweeps
from tandem.spec.kv_type import CodeType

AUTO = POLICIES["auto"]
MODELS = [
    short(plannable_spec(name), layers)
    for name, layers in (
        ("llama-3.1-8b", 8),
        ("opt-30b", 9),
        ("gemma-3-27b", 12),
        ("qwen3-30b-a3b", 6),
    )
]
MODELS.append(with_dense(MODELS[-1], 0, 3))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    question = ask(
        draw(st.sampled_from(MODELS)),
        draw(st.sampled_from(["t4", "a10g", "rtx4090", "a100-40"])),
        draw(st.sampled_from(["g5.4xlarge", "desktop-ddr4", "lm-offload", "server-genoa"])),
        prompt=draw(st.sampled_from(["32", "300-900", "1500"])),
        generate=draw(st.sampled_from(["8", "100-200", "500"])),
        requests=draw(st.sampled_from([1, 3, 60, 400])),
        objective=draw(st.sampled_from(["throughput", "throughput", "latency"])),
    )
    if draw(st.integers(0, 3)) == 0:
        kind = draw(st.sampled_from(CodeType))
        question = replace(question, precision=replace(question.precision, kv=kind))
    tile_rows = draw(st.sampled_from([None, None, 64, 128]))
    card = replace(question.hardware.accelerator, tile_rows=tile_rows)
    question = replace(question, hardware=replace(question.hardware, accelerator=card))
    share = draw(st.floats(0.05, 1.0))
    # often, not everything fits the accelerator, and sometimes not the host either
    host_share = draw(st.sampled_from([1.0, 1.0, 0.06, 0.02]))
    return replace(
        question,
        device_bytes=int(question.device_bytes * share),
        host_bytes=int(question.host_bytes * host_share),
        tpot_bound_s=draw(st.sampled_from([None, 0.05, 0.5])),
    )


@settings(max_examples=scaled(20))
@given(questions())
def test_plans_respect_every_capacity_and_bound(question: Question) -> None:
    search = Search(question)
    best = search.best(AUTO)
    if best is None:
        return
    for option in (best, *search.alternatives(AUTO, best)):
        device, host = search.footprint.uses(option.candidate)
        assert device.free_bytes >= 0
        assert host.free_bytes >= 0
        assert 0 < option.candidate.rows <= question.max_rows
        assert option.tokens_per_s <= option.prediction.bound_tokens_per_s * (1 + 1e-9)
        assert option.tokens_per_s <= best.tokens_per_s * (1 + 1e-9)
        if question.tpot_bound_s is not None:
            assert option.prediction.rates.worst_tpot_s <= question.tpot_bound_s
        for name, share in option.prediction.busy:
            assert -1e-9 <= share <= 1 + 1e-6, name


@settings(max_examples=scaled(12))
@given(questions(), st.data())
def test_no_look_at_a_candidate_is_below_its_bound_nor_that_below_its_prediction(
    question: Question, data: st.DataObject
) -> None:
    search = Search(question)
    fitting, predictor = list(Candidates(question, search.footprint).of(AUTO)), search.predictor
    sweeps = Sweeps(question, search.footprint, search.schedules)
    glances = Glances(question, sweeps, predictor)
    if not fitting:
        return
    for _ in range(5):
        plain = data.draw(st.sampled_from(fitting))
        for candidate in {plain, plain.with_elsewhere(plain.elsewhere.lending(3))}:
            bound = predictor.bound(candidate).job_tokens_per_s
            lends = candidate.elsewhere.lent > 0
            glance = glances.of(plain if lends else candidate, lends=lends)[lends]
            assert glance >= predictor.first_bound(candidate), candidate
            assert predictor.first_bound(candidate) >= bound * (1 - 1e-9), candidate
            # numbers of tokens are rounded in between
            assert predictor.rough_bound(candidate) >= bound * (1 - 0.01), candidate
            assert predictor.rates(candidate).job_tokens_per_s <= bound * (1 + 1e-9), candidate
            if predictor.is_surely_late(candidate):
                assert not question.allows(predictor.bound(candidate).worst_tpot_s), candidate


@settings(max_examples=scaled(12))
@given(questions())
def test_the_plan_is_at_least_as_good_as_every_policy_searched_by_itself(
    question: Question,
) -> None:
    best = Search(question).best(AUTO)
    for policy in POLICIES.values():
        option = Search(question).best(policy)  # knows nothing of the plan, nor the plan of it
        if option is not None:
            assert best is not None, policy.name
            assert best.tokens_per_s >= option.tokens_per_s * (1 - 1e-5), policy.name


@settings(max_examples=scaled(12))
@given(questions())
def test_a_plan_that_chooses_its_steps_lacks_less_than_tells_sizes_apart(
    question: Question,
) -> None:
    question = replace(question, step_sizes=STEP_SIZES)
    best = Search(question).best(AUTO)
    for policy in POLICIES.values():
        option = Search(question).best(policy)
        if option is not None:
            assert best is not None, policy.name
            assert best.tokens_per_s >= AS_FAST * option.tokens_per_s, policy.name


@settings(max_examples=scaled(6))
@given(questions(), st.permutations(range(4)))
def test_more_of_a_resource_is_never_worse(question: Question, order: list[int]) -> None:
    check_growing_machines(question, order)


@settings(max_examples=scaled(3))
@given(questions(), st.permutations(range(4)))
def test_more_of_a_resource_is_no_worse_where_the_size_of_steps_is_chosen(
    question: Question, order: list[int]
) -> None:
    check_growing_machines(replace(question, step_sizes=STEP_SIZES), order)


def check_growing_machines(question: Question, order: Sequence[int]) -> None:
    """Each is the one before with more of another resource. The plan for it, found without knowing
    of theirs, reaches 99% of what every smaller one's does, at least.
    """
    smaller: list[tuple[Option, Option]] = []
    for machine in growing(question, order):
        search = Search(machine)
        best, chosen = search.best(AUTO), search.choice(AUTO)
        if best is None or chosen is None:
            assert not smaller, "it fits less than a smaller one"
            continue
        for best_there, chosen_there in smaller:
            assert best.tokens_per_s >= 0.99 * best_there.tokens_per_s
            assert chosen.tokens_per_s >= 0.99 * chosen_there.tokens_per_s
            # of the same candidate, neither the bound nor the prediction is worse
            if search.footprint.fits(best_there.candidate):
                again, before = (
                    search.predictor.predict(best_there.candidate),
                    best_there.prediction,
                )
                assert again.bound_tokens_per_s >= before.bound_tokens_per_s * (1 - 1e-9)
                assert again.rates.tokens_per_s >= before.rates.tokens_per_s * (1 - 1e-6)
        smaller.append((best, chosen))


def growing(question: Question, order: Sequence[int]) -> Iterator[Question]:
    """It, and with more of one resource after another."""
    yield question
    kinds = len(list(larger_machines(question)))
    for kind in (kind for kind in order if kind < kinds):
        _, question = list(larger_machines(question))[kind]
        yield question
