"""Random offline plans and requests that come, end and are aborted: tokens stay exact."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.parity.block_models import BLOCK_MODELS, MIXTURE, WIDE, WIDE_MIXTURE
from tests.parity.checkpoints import Checkpoints
from tests.parity.few_bits_reference import FewBitsReference
from tests.parity.greedy import TIE_MARGIN, Reference, TieCount, assert_greedy_parity
from tests.parity.quantized_weights import precision, with_rounded_layers
from tests.parity.tiny_models import VOCAB_SIZE
from tests.support.blocks import ExecutorKind, block_engine_with_scheduler, loaded, small_plan

from tandem.kernels import native
from tandem.models.model import Model
from tandem.plan.offline import OfflinePlan
from tandem.plan.weights import LENT, STREAM_SLOTS, Home, as_runs, streamed_layers
from tandem.spec.errors import ConfigError, ContextLengthError
from tandem.spec.kv_type import CodeType
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams
from tandem.spec.weight_format import WeightFormat

LENGTHS = (1, 2, 15, 16, 17, 33, 50)
COUNTS = (1, 2, 17)
KV_MARGIN = 2e-3  # a code may be rounded up here and down there
IN_MEMORY: list[tuple[Home, ...]] = [("streamed",), ("streamed", "host-mlp"), ("host", "host-mlp")]
WAYS = [*IN_MEMORY]
if native.available():
    WAYS += [("streamed", "disk_streamed"), ("host", "host-mlp", "disk_streamed")]
LEAST_COLUMNS = 72  # of any model's MLPs
KINDS: tuple[ExecutorKind, ...] = ("exact", "exact", "inline")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its prompt's and its output's length, when it comes and when it is aborted (steps
    after), and after how many tokens a stop token is due (0: none).
    """

    length: int
    count: int
    arrival: int
    abort: int | None
    stop: int

    @property
    def prompt(self) -> tuple[int, ...]:
        """Different for each length."""
        return tuple(
            (5 * self.length + 11 * i * i + 3 * i) % VOCAB_SIZE for i in range(self.length)
        )


ASKED = st.builds(
    Asked,
    st.sampled_from(LENGTHS),
    st.sampled_from(COUNTS),
    st.integers(0, 6),
    st.none() | st.none() | st.integers(0, 5),
    st.sampled_from((0, 0, 1, 3)),
)


@st.composite
def plans(draw: st.DrawFn, layers: int, among: list[tuple[Home, ...]] = WAYS) -> OfflinePlan:
    picked = draw(st.sets(st.integers(0, layers - 1)))
    ways: tuple[Home, ...] = draw(st.sampled_from(among))
    homes: list[Home] = [
        draw(st.sampled_from(ways)) if i in picked else "resident" for i in range(layers)
    ]
    apart = [i for i, home in enumerate(homes) if home == "host-mlp"]
    computed = draw(on_cpu(homes))
    whole = tuple(i for i in computed if homes[i] == "host")
    rows = draw(st.tuples(*[st.integers(0, 2)] * 3).filter(any))
    made = 16 * draw(st.integers(0, 2)) if rows[1] and not whole else 0
    plan = small_plan(
        tuple(homes),
        batches=draw(st.integers(1, 3)),
        resident_rows=rows[0],
        streamed_rows=rows[1],
        cpu_rows=rows[2],
        recomputed_tokens=made,
        row_blocks=draw(st.integers(3, 5)),
        prefill_tokens=draw(st.sampled_from((16, 40, 128))),
        prompts_on_host=draw(st.booleans()),
        layers_overlap=draw(st.booleans()),
        weights_in_parts=not apart and draw(st.booleans()),
        max_model_len=80,
    )
    if draw(st.booleans()):
        with suppress(ConfigError):  # what columns do not go together with
            divided = replace(plan, cpu_columns=draw(st.integers(1, LEAST_COLUMNS - 1)))
            if not (apart or made) and draw(st.booleans()):
                return replace(divided, cpu_attention_maps=True)
            return divided
    with suppress(ConfigError):  # the others on disk would be read in another order
        mlps = tuple(i for i in computed if i not in whole)
        return replace(plan, cpu_mlps=mlps, cpu_layers=whole)
    assert "disk_streamed" in homes
    return plan


def on_cpu(homes: list[Home]) -> st.SearchStrategy[tuple[int, ...]]:
    """Any of which streamed layers still go round: the first ones are what a pass begins with."""
    lent = [i for i, home in enumerate(homes) if home in LENT]
    first = streamed_layers(as_runs(homes)).first
    away = [i for i, home in enumerate(homes) if home in ("streamed", "disk_streamed")]
    chosen = st.sets(st.sampled_from(lent)) if lent else st.just(set[int]())
    all_but = chosen.map(lambda found: tuple(sorted(found - {*first})))
    return all_but if away else all_but | st.just(tuple(lent))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_tokens_are_those_of_transformers_whatever_the_plan(
    checkpoints: Checkpoints, data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from((*BLOCK_MODELS, MIXTURE)))
    plan = data.draw(plans(case.config().num_hidden_layers))
    asked = data.draw(st.lists(ASKED, min_size=1, max_size=9))
    kind, seed = data.draw(st.sampled_from(KINDS)), data.draw(st.integers(0, 9))
    shares = data.draw(shares_of(plan))
    directory, reference = checkpoints.get(case)
    check(loaded(directory, plan), lambda _: reference, plan, asked, kind, seed, shares)


def shares_of(plan: OfflinePlan) -> st.SearchStrategy[dict[int, int]]:
    """Before which steps how many of a batch's sequences with KV on the host are to be streamed."""
    if not plan.host_rows or plan.recomputed_tokens:
        return st.just({})
    rows = st.integers(0, plan.host_rows)
    return st.dictionaries(st.integers(1, 20), rows, max_size=6)


@pytest.fixture(scope="module")
def rounded() -> dict[tuple[str, WeightFormat, tuple[int, ...]], Reference]:
    """References by what is in few bits; each is made once."""
    return {}


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_tokens_in_few_bits_are_those_of_a_reference_that_rounds_the_same_way(
    checkpoints: Checkpoints,
    rounded: dict[tuple[str, WeightFormat, tuple[int, ...]], Reference],
    data: st.DataObject,
) -> None:
    """Weights of all layers, or of streamed ones; or KV on the host, beside none elsewhere."""
    case = data.draw(st.sampled_from((WIDE, WIDE_MIXTURE)))
    layers = case.config().num_hidden_layers
    plan = data.draw(plans(layers, IN_MEMORY))
    asked = data.draw(st.lists(ASKED, min_size=1, max_size=3))
    kind, seed = data.draw(st.sampled_from(KINDS)), data.draw(st.integers(0, 9))
    directory, exact = checkpoints.get(case)
    if plan.host_rows and data.draw(st.booleans()):
        held = data.draw(st.sampled_from(CodeType))
        made = 0 if plan.cpu_rows else plan.recomputed_tokens
        plan = replace(plan, resident_rows=0, recomputed_tokens=made, host_kv_dtype=str(held))

        def of_prompt(prompt: tuple[int, ...]) -> Reference:
            return FewBitsReference(exact.model, held, prompt, min(made, len(prompt)) // 16 * 16)

        check(loaded(directory, plan), of_prompt, plan, asked, kind, seed, {}, KV_MARGIN)
        return
    format = data.draw(st.sampled_from((WeightFormat(4, 32), WeightFormat(8, 64))))
    few = tuple(range(layers))
    plan = replace(plan, quantized_layers="all", quantization=str(format))
    with suppress(ConfigError):  # not beside what the CPU computes
        plan = replace(plan, quantized_layers=data.draw(st.sampled_from(("all", "streamed"))))
    if plan.quantized_layers == "streamed":
        few = streamed_layers(plan.weights).layers
    key = case.id, format, few
    if key not in rounded:
        rounded[key] = Reference(with_rounded_layers(exact.model, format, few))
    reference = rounded[key]
    model = loaded(directory, plan, precision=precision(directory, format))
    shares = data.draw(shares_of(plan))
    check(model, lambda _: reference, plan, asked, kind, seed, shares)


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_batches_part_and_are_gathered_without_changing_tokens(
    checkpoints: Checkpoints, data: st.DataObject
) -> None:
    """Where the CPU computes layers and nothing comes."""
    case = data.draw(st.sampled_from(BLOCK_MODELS))
    layers = case.config().num_hidden_layers
    home = data.draw(st.sampled_from(LENT))
    behind = data.draw(st.lists(st.sampled_from((home, "resident")), min_size=layers - 1))
    homes: tuple[Home, ...] = (home, *behind[: layers - 1])
    away = tuple(layer for layer, each in enumerate(homes) if each == home)
    computed = away if len(away) <= STREAM_SLOTS else away[STREAM_SLOTS:]
    computed = {"cpu_layers" if home == "host" else "cpu_mlps": computed}
    plan = small_plan(
        homes,
        batches=data.draw(st.integers(2, 3)),
        resident_rows=data.draw(st.integers(1, 3)),
        row_blocks=5,
        max_model_len=80,
        **computed,
    )
    assert plan.shape.batches_part
    asked = data.draw(st.lists(ASKED, min_size=3, max_size=9))
    kind, seed = data.draw(st.sampled_from(KINDS)), data.draw(st.integers(0, 9))
    directory, reference = checkpoints.get(case)
    check(loaded(directory, plan), lambda _: reference, plan, asked, kind, seed, {})


def check(
    model: Model,
    reference_of: Callable[[tuple[int, ...]], Reference],
    plan: OfflinePlan,
    asked: list[Asked],
    kind: ExecutorKind,
    seed: int,
    shares: Mapping[int, int],
    margin: float = TIE_MARGIN,
) -> None:
    """Before some steps, other numbers of a batch's sequences are streamed.

    Args:
        reference_of: a prompt.
    """
    references = [reference_of(each.prompt) for each in asked]
    stops = [
        reference.continuation(each.prompt, max(COUNTS))[each.stop - 1] if each.stop else None
        for each, reference in zip(asked, references, strict=True)
    ]
    made: dict[str, list[int]] = {}
    reasons: dict[str, FinishReason | None] = {}
    aborted: set[str] = set()
    with block_engine_with_scheduler(model, plan, kind, seed) as (core, scheduler):
        step = 0
        while core.has_work() or step <= 6:
            for i, each in enumerate(asked):
                if each.arrival == step:
                    add(core, str(i), each, stops[i], made, reasons)
                if each.abort is not None and each.arrival + each.abort == step:
                    core.abort(str(i))
                    aborted.add(str(i))
            if step in shares:
                scheduler.share(shares[step])
            for output in core.step():
                made[output.request_id] += output.token_ids
                reasons[output.request_id] = output.finish_reason
            step += 1
            assert step < 300
        assert all(tier.held_blocks == 0 for tier in core.stats().tiers)
    ties = TieCount()
    for name, tokens in made.items():
        each, stop = asked[int(name)], stops[int(name)]
        assert_greedy_parity(references[int(name)], each.prompt, tokens, ties, margin=margin)
        if stop is not None and stop in tokens:
            assert tokens.index(stop) == len(tokens) - 1
        if name in aborted:
            continue
        ended = FinishReason.STOP if tokens[-1] == stop else FinishReason.LENGTH
        assert reasons[name] is ended
        assert len(tokens) == each.count or ended is FinishReason.STOP


def add(
    core: Any,
    name: str,
    each: Asked,
    stop: int | None,
    made: dict[str, list[int]],
    reasons: dict[str, FinishReason | None],
) -> None:
    params = SamplingParams(
        max_tokens=each.count,
        temperature=0.0,
        ignore_eos=True,
        stop_token_ids=() if stop is None else (stop,),
    )
    request = EngineRequest(name, each.prompt, params)
    with suppress(ContextLengthError):  # no place has room for it
        core.add_request(request)
        made[name], reasons[name] = [], None
