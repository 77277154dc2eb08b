"""MLPs divided by columns in plans of batch jobs: their cost by hand, and where they are chosen."""

from dataclasses import replace
from itertools import product
from operator import mul

import pytest
from tests.property.test_offline_planner import few_bits
from tests.unit.planner.questions import ask, short, with_disk

from tandem.cost.block_pass import longest_s
from tandem.engine.sizing.block_memory import plan_block_memory
from tandem.engine.sizing.capacities import Capacities
from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import whole_columns
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.relaxation.divided_layers import DividedLayers
from tandem.planner.offline.relaxation.kv_kinds import KvKinds, kv_kinds, none_recomputed
from tandem.planner.offline.relaxation.layers_away import LayersAway
from tandem.planner.offline.relaxation.shares import least_shares
from tandem.planner.offline.relaxation.way import BlockWay
from tandem.planner.offline.relaxation.whole_layers import WholeLayers
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.share_terms import mean_work, share_terms
from tandem.planner.offline.work import CPU_COLUMNS, operation
from tandem.planner.question import Question
from tandem.planner.relaxation.solver import Solver
from tandem.spec.errors import ConfigError
from tandem.spec.units import GIB

OPT = short(plannable_spec("opt-30b"), 8)
SIZE = OPT.intermediate_size
MLP_BYTES = 2 * SIZE * OPT.hidden_size * 2
ATTENTION_BYTES = 4 * OPT.hidden_size**2 * 2
AUTO = OFFLINE_POLICIES["auto"]
WITHOUT = replace(AUTO, name="without", divides=False)


def asked(requests: int = 1280, **changes: object) -> Question:
    """Memory for the attention of all layers, and for their MLPs hardly."""
    question = ask(OPT, "a100-40", "lm-offload", prompt="64", generate="128", requests=requests)
    return replace(question, device_bytes=int(6.5 * GIB), host_bytes=40 * GIB, **changes)


def dividing(columns: int, batches: int = 4, rows: int = 40, **changes: object) -> BlockCandidate:
    return replace(BlockCandidate(batches, 8, 0, 0, rows, mlps=True, columns=columns), **changes)


def test_the_link_brings_what_the_cpu_does_not_compute() -> None:
    search, half = OfflineSearch(asked()), SIZE // 2
    link, host = search.question.hardware.link, search.question.hardware.host
    for mlps, beside in ((True, 0), (False, ATTENTION_BYTES)):
        all_, some = (search.times.time(dividing(n, 1, 1, mlps=mlps)).decode for n in (0, half))
        assert all_.h2d_s == pytest.approx(
            8 * (beside + MLP_BYTES) / link.h2d_bytes_per_s, rel=0.02
        )
        assert some.h2d_s == pytest.approx(
            8 * (beside + MLP_BYTES / 2) / link.h2d_bytes_per_s, rel=0.02
        )
        read_s = 8 * MLP_BYTES / 2 / host.memory_bandwidth_bytes_per_s
        assert read_s < some.cpu_s - all_.cpu_s < 1.1 * read_s
        prompts = search.times.time(dividing(half, 1, 1, mlps=mlps)).prefill
        assert prompts.h2d_s > 8 * (beside + MLP_BYTES) / link.h2d_bytes_per_s  # all of it, and
        whole = search.times.time(dividing(0, 1, 1, mlps=mlps)).prefill  # what two layers lack
        more_s = 2 * MLP_BYTES / 2 / link.h2d_bytes_per_s
        assert prompts.h2d_s - whole.h2d_s == pytest.approx(more_s, rel=0.02)


@pytest.mark.parametrize("mlps", [False, True])
@pytest.mark.parametrize("rows", [
    {"resident_rows": 40, "cpu_rows": 0}, {"streamed_rows": 40, "cpu_rows": 0}, {},
    {"resident_rows": 1, "streamed_rows": 2},
])  # fmt: skip
@pytest.mark.parametrize("batches", [1, 4])
def test_no_pass_is_shorter_than_its_bound(batches: int, rows: dict[str, int], mlps: bool) -> None:
    search = OfflineSearch(asked())
    for columns in (128, SIZE // 8, SIZE // 2, SIZE - 128):
        candidate = dividing(columns, batches, mlps=mlps, **rows)
        time = search.times.time(candidate).decode
        assert 1 <= time.period_s / search.times.bound.decode_s(candidate) < 1.4


def test_link_and_cpu_are_both_busy_where_columns_level_them() -> None:
    search = OfflineSearch(asked())
    found = [c for c in search.candidates.of(AUTO) if c.columns and c.batches > 1 and c.mlps]
    best = max(found, key=search.bound_tokens_per_s)
    time = search.times.time(best).decode
    assert min(time.h2d_s, time.cpu_s) > 0.8 * time.period_s
    assert all(c.columns % 128 == 0 for c in found)


def test_large_blocks_divide_mlps_and_are_faster_by_it() -> None:
    search = OfflineSearch(asked())
    best, without = search.best(AUTO), search.best(WITHOUT)
    assert best is not None
    assert without is not None
    assert best.candidate.columns
    assert not without.candidate.columns
    assert best.tokens_per_s > 1.05 * without.tokens_per_s
    ceiling = BlockCeilings(search.question, search.times).ceiling()
    assert ceiling is not None
    assert best.tokens_per_s <= ceiling.tokens_per_s
    said = best.candidate.describe(8)
    assert f"{best.candidate.columns} columns of each MLP on the CPU where no prompt" in said


def test_the_plan_has_room_for_both_parts_and_says_how_many() -> None:
    question = asked()
    search = OfflineSearch(question)
    candidate = dividing(whole_columns(SIZE / 5))
    plan = offline_plan(search, candidate, adapts=True)
    assert plan.cpu_columns == candidate.columns
    assert plan.shape.divided == tuple(range(8))
    room = Capacities(question.device_bytes, question.host_bytes, real=True)
    memory = plan_block_memory(plan, OPT, question.precision, room)
    rows = {(entry.location, entry.label): entry.predicted_bytes for entry in memory.ledger.entries}
    assert rows["host", "weights"] == plan.host.weights_bytes == 8 * MLP_BYTES
    assert rows["device", "weights"] == plan.accelerator.weights_bytes
    none = search.footprint.device(dividing(0), prompts_on_host=False).workspace
    some = search.footprint.device(candidate, prompts_on_host=False).workspace
    assert some > none
    terms = share_terms(search.times, candidate)
    assert terms.mlps.seconds(4 * 40, 0) == pytest.approx(
        8 * 4 * search.times.prices.decode(candidate)(operation(CPU_COLUMNS, 0)).alone_s
    )
    assert mean_work(question, candidate).cpu_rows == 160


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("qwen3-30b-a3b", {}, "experts in their place"),
        ("opt-30b", {"quantized": True}, "in few bits"),
        ("opt-30b", {"cpu_columns": SIZE}, f"cpu_columns are {SIZE}, of MLPs with {SIZE}"),
    ],
)
def test_models_whose_mlps_cannot_be_divided_are_refused(
    name: str, changes: dict[str, object], message: str
) -> None:
    question = asked()
    plan = offline_plan(OfflineSearch(question), dividing(256))
    precision = question.precision
    if changes.pop("quantized", False):
        precision = few_bits(OPT)
    plan = replace(plan, **changes)
    room = Capacities(question.device_bytes, question.host_bytes, real=True)
    with pytest.raises(ConfigError, match=message) as error:
        plan_block_memory(plan, short(plannable_spec(name), 8), precision, room)
    assert "\n" not in error.value.message


def test_only_auto_divides_and_no_mixtures() -> None:
    search = OfflineSearch(asked())
    for policy in OFFLINE_POLICIES.values():
        divides = any(candidate.columns for candidate in search.candidates.of(policy))
        assert divides == (policy.name == "auto")
    mixture = short(plannable_spec("qwen3-30b-a3b"), 8)
    question = replace(asked(model=mixture), device_bytes=2 * GIB)
    found = OfflineSearch(question).candidates
    assert not any(candidate.columns for candidate in found.of(AUTO))


WHOLE = short(plannable_spec("llama-3.1-70b"), 16)
CUTS_NOT = replace(AUTO, name="cuts not", cuts=False)


def small_job(**changes: object) -> Question:
    """One batch, and a CPU that reads a layer in less time than the link brings it."""
    question = ask(WHOLE, "rtx4090", "server-genoa", prompt="512", generate="64", requests=16)
    return replace(question, device_bytes=int(14.5 * GIB), **changes)


def cutting(columns: int, batches: int = 1, rows: int = 8, **changes: object) -> BlockCandidate:
    found = BlockCandidate(batches, 12, 0, 0, rows, columns=columns, attention_maps=True)
    return replace(found, **changes)


def test_the_link_brings_nothing_of_attention_s_maps_where_they_are_the_cpu_s() -> None:
    search, size = OfflineSearch(small_job()), WHOLE.intermediate_size
    mlp = 3 * size * WHOLE.hidden_size * 2
    maps = 2 * (WHOLE.q_size + WHOLE.kv_size) * WHOLE.hidden_size * 2
    link = search.question.hardware.link.h2d_bytes_per_s
    host = search.question.hardware.host
    some, others = cutting(size // 2), cutting(size // 2, attention_maps=False)
    times = [search.times.bound.decode_busy(each) for each in (some, others)]
    assert times[0].link_s == pytest.approx(12 * mlp / 2 / link, rel=0.02)
    assert times[1].link_s == pytest.approx(12 * (mlp / 2 + maps) / link, rel=0.02)
    read_s = 12 * maps / host.memory_bandwidth_bytes_per_s
    assert read_s < times[0].cpu_s - times[1].cpu_s < 1.2 * read_s
    whole = search.times.bound.prefill_busy(replace(some, columns=0, attention_maps=False))
    more_s = search.times.bound.prefill_busy(some).link_s - whole.link_s
    assert more_s == pytest.approx(2 * (mlp / 2 + maps) / link, rel=0.02)


@pytest.mark.parametrize("rows", [
    {"resident_rows": 8, "cpu_rows": 0}, {"streamed_rows": 8, "cpu_rows": 0}, {},
    {"resident_rows": 1, "streamed_rows": 2},
])  # fmt: skip
@pytest.mark.parametrize("batches", [1, 2])
def test_no_pass_with_attention_s_maps_on_the_cpu_is_shorter_than_its_bound(
    batches: int, rows: dict[str, int]
) -> None:
    search = OfflineSearch(small_job())
    for columns in (128, 14_336, WHOLE.intermediate_size - 128):
        candidate = cutting(columns, batches, **rows)
        time = search.times.time(candidate).decode
        assert 1 <= time.period_s / search.times.bound.decode_s(candidate) < 1.4


def test_one_small_batch_has_attention_s_maps_on_the_cpu_and_is_faster_by_it() -> None:
    """All layers of the model, since attention's maps of few would fit the accelerator."""
    model = plannable_spec("llama-3.1-70b")
    question = ask(model, "rtx4090", "server-genoa", prompt="512", generate="64", requests=16)
    search = OfflineSearch(question)
    best, without = search.best(AUTO), search.best(CUTS_NOT)
    assert best is not None
    assert without is not None
    assert best.candidate.attention_maps
    assert best.tokens_per_s > 1.02 * without.tokens_per_s
    ceiling = BlockCeilings(question, search.times).ceiling()
    assert ceiling is not None
    assert best.tokens_per_s <= ceiling.tokens_per_s
    plan = offline_plan(search, best.candidate, adapts=True)
    assert plan.cpu_attention_maps
    assert plan.shape.cut
    room = Capacities(question.device_bytes, question.host_bytes, real=True)
    plan_block_memory(plan, model, question.precision, room)  # or it raises
    some = best.candidate.shared(best.candidate.rows // 2, best.candidate.rows // 4)
    terms, work = share_terms(search.times, some), mean_work(question, some)
    decode = search.times.time(some).decode
    assert longest_s(terms, work) == pytest.approx(decode.period_s, rel=0.02)
    assert "attention's maps and" in best.candidate.describe(80)


def test_no_other_policy_leaves_attention_s_maps_to_the_cpu() -> None:
    search = OfflineSearch(small_job())
    for policy in OFFLINE_POLICIES.values():
        assert search.candidates.possible(cutting(256), policy) == (policy.name == "auto")
    for changes in (
        {"columns": 0}, {"mlps": True}, {"lent": 2}, {"on_disk": 12},
        {"cpu_rows": 0, "streamed_rows": 8, "recomputed_tokens": 64},
    ):  # fmt: skip
        assert not search.candidates.possible(replace(cutting(256), **changes), AUTO)


MAPS, COLUMNS = BlockWay(True, lends="maps"), BlockWay(True, lends="columns")


def kinds_of(search: OfflineSearch, batches: int, rows: int, way: BlockWay) -> KvKinds:
    kinds = kv_kinds(search.times, BlockCandidate(batches, 0, rows, 0, 0))
    return none_recomputed(kinds) if way.lends == "maps" else kinds


def four_batches(**changes: object) -> Question:
    """Of more sequences than the accelerator has room for."""
    question = ask(WHOLE, "rtx4090", "server-genoa", prompt="512", generate="64", requests=256)
    return replace(question, device_bytes=8 * GIB, **changes)


@pytest.mark.parametrize("way", [
    MAPS, COLUMNS, BlockWay(True, lends="columns", mlps=True), replace(MAPS, reads=True),
    BlockWay(True, True, lends="columns", mlps=True)
], ids=["maps", "columns", "of mlps", "maps, read", "of mlps, read"])  # fmt: skip
@pytest.mark.parametrize(("question", "batches", "rows"), [
    (small_job(), 1, 16), (four_batches(), 4, 64), (asked(), 4, 128),
], ids=["one small batch", "four batches", "opt"])  # fmt: skip
def test_no_row_of_the_programme_asks_for_more_than_candidates_do(
    way: BlockWay, question: Question, batches: int, rows: int
) -> None:
    search = OfflineSearch(question)
    bound, kinds = search.times.bound, kinds_of(search, batches, rows, way)
    away = LayersAway(search.times, bound, kinds, way)
    divided = DividedLayers(search.times, bound, kinds, away)
    works = list(divided.work(away.loads(bound.decode_busy), away.reads(bound.decode_busy)))
    layers, size = question.model.num_layers, question.model.intermediate_size
    near = 0
    for (number, kind), streamed, columns, some in product(
        enumerate(kinds), range(3, layers + 1), (1, 128, size // 4, size // 2, size - 128), (2, 3)
    ):
        read, maps = (some if way.reads else 0), way.lends == "maps"
        if streamed == read:
            continue
        candidate = replace(
            kind, streamed=streamed, on_disk=read, mlps=way.mlps, columns=columns,
            attention_maps=maps,
        )  # fmt: skip
        parted = (streamed - read) / layers
        shares = streamed / layers, read / layers, parted, parted * columns / size
        found = away.resources(bound.decode_busy(candidate))
        asked_s = [
            w.kinds[number] + sum(map(mul, shares, (w.streamed, w.reads, w.divided, w.cpu)))
            for w in works
        ]
        for seconds, least_s in zip(found, asked_s, strict=True):
            assert least_s <= seconds * (1 + 1e-9)
        near += max(asked_s) > 0.9 * max(found)
    assert near > layers  # nor is nothing asked for


def test_a_block_with_attention_s_maps_on_the_cpu_takes_no_less_than_its_programme() -> None:
    """All KV is the CPU's, where what the link is spared by it was counted as none."""
    search = OfflineSearch(four_batches())
    bound, kinds = search.times.bound, kinds_of(search, 4, 64, MAPS)
    every = WholeLayers((16, 16), (0, 16))
    found = least_shares(search.times, Solver(), bound, kinds, kinds, MAPS, every)
    assert found is not None
    candidate = replace(kinds[2], streamed=16, columns=3329, attention_maps=True)
    assert search.footprint.fits(candidate)
    passes = search.question.lengths.generated_tokens - 1
    least_s = bound.prefill_s(candidate) + passes * bound.decode_s(candidate)
    assert 0.98 * least_s < found.block_s <= least_s * (1 + 1e-9)


def test_where_some_layers_must_be_on_disk_others_are_divided() -> None:
    deep = short(plannable_spec("llama-3.1-70b"), 24)
    job = ask(deep, "rtx4090", "server-genoa", prompt="256", generate="64", requests=256)
    question = with_disk(replace(job, device_bytes=10 * GIB, host_bytes=36 * GIB), 12e9)
    search = OfflineSearch(question)
    best, without = search.best(AUTO), OfflineSearch(question).best(WITHOUT)
    assert best is not None
    assert without is not None
    assert best.candidate.on_disk
    assert best.candidate.columns
    assert best.tokens_per_s > 1.05 * without.tokens_per_s
    time = search.times.time(best.candidate)
    assert time.decode.period_s >= search.times.bound.decode_s(best.candidate)
    ceiling = BlockCeilings(question, search.times).ceiling()
    assert ceiling is not None
    assert best.tokens_per_s <= ceiling.tokens_per_s
    plan = offline_plan(search, best.candidate, adapts=True)
    assert len(plan.shape.weights.on_disk) == best.candidate.on_disk
    assert len(plan.shape.divided) == best.candidate.streamed - best.candidate.on_disk
    room = Capacities(question.device_bytes, question.host_bytes, real=True)
    plan_block_memory(plan, deep, question.precision, room)  # or it raises
    terms, work = share_terms(search.times, best.candidate), mean_work(question, best.candidate)
    least_s = search.times.bound.decode_s(best.candidate)
    assert longest_s(terms, work) == pytest.approx(least_s, rel=0.03)
