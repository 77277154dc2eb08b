"""What must hold of the linear programmes of blocks, and of candidates by their shares."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_offline_planner import AUTO, questions
from tests.support.examples import scaled
from tests.unit.planner.questions import SMALL, ask, short, with_disk

from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.relaxation.block_programmes import BlockProgrammes, RelaxedBlock
from tandem.planner.offline.relaxation.rounding import rounded_shares
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Question
from tandem.planner.sensitivity import larger_machines
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.units import GIB

SAVES_COPIES = replace(ask(SMALL, "t4", "desktop-ddr4", requests=6), device_bytes=4 * GIB)
"""What layers on the CPU save here are copies of what it attends to, fewer seconds of a faster
link; they were taken off wherever KV lies, so that the ceiling fell by 0.05%.
"""


def programmes(search: OfflineSearch, block: BlockCandidate) -> list[RelaxedBlock]:
    return list(BlockProgrammes(search.times).of_block(block))


def block_s(search: OfflineSearch, candidate: BlockCandidate) -> float:
    """The least of its own, by its bound."""
    passes = max(0.0, search.question.lengths.generated_tokens - 1)
    bound = search.times.bound
    return bound.prefill_s(candidate) + passes * bound.decode_s(candidate)


@settings(max_examples=scaled(8))
@given(questions(), st.data())
def test_no_candidate_of_a_block_takes_less_than_its_programmes(
    question: Question, data: st.DataObject
) -> None:
    search = OfflineSearch(question)
    blocks = list(search.candidates.blocks(AUTO))
    for block in data.draw(st.lists(st.sampled_from(blocks), min_size=1, max_size=4)):
        found = [
            candidate
            for start in search.candidates.starts(block, AUTO)
            for candidate in search.candidates.of_start(start, AUTO)
        ]
        relaxed = programmes(search, block)
        assert relaxed or not found
        least_s = min((each.shares.block_s for each in relaxed), default=0.0)
        for candidate in found:
            assert block_s(search, candidate) >= least_s * (1 - 1e-6), candidate


@settings(max_examples=scaled(8))
@given(questions(), st.sampled_from(sorted(OFFLINE_POLICIES)), st.data())
def test_shares_add_up_and_what_is_made_of_them_keeps_to_everything(
    question: Question, name: str, data: st.DataObject
) -> None:
    search, policy = OfflineSearch(question), OFFLINE_POLICIES[name]
    blocks = list(search.candidates.blocks(AUTO))
    layers = question.model.num_layers
    for relaxed in programmes(search, data.draw(st.sampled_from(blocks))):
        shares, way = relaxed.shares, relaxed.way
        kinds = shares.resident, shares.crossing, shares.cpu, shares.recomputed
        assert sum(kinds) == pytest.approx(1.0)
        assert all(-1e-6 <= share <= 1 + 1e-6 for share in (*kinds, shares.streamed, shares.lent))
        assert max(shares.lent, shares.read) <= shares.streamed + 1e-6
        assert not (shares.lent and way.lends == "none")
        for candidate in rounded_shares(relaxed, search.candidates, layers, policy):
            assert search.candidates.possible(candidate, policy)
            assert candidate.block_rows == relaxed.block.block_rows
            assert candidate.mlps == way.mlps


@st.composite
def few_requests(draw: st.DrawFn, generate: str) -> Question:
    """So few that the CPU may compute layers."""
    question = ask(
        draw(st.sampled_from([SMALL, short(plannable_spec("opt-6.7b"), 5)])),
        draw(st.sampled_from(["t4", "rtx4090", "a100-40"])),
        draw(st.sampled_from(["g5.4xlarge", "desktop-ddr4", "server-genoa"])),
        prompt=draw(st.sampled_from(["32", "300-900", "1500"])),
        generate=generate,
        requests=draw(st.integers(1, 24)),
    )
    layer_bytes = layer_matrix_bytes(question.model, question.precision)
    weights = layer_bytes * question.model.num_layers
    host_bytes = int(weights * draw(st.sampled_from([0.5, 1.2, 8.0])))
    device_bytes = int(weights * draw(st.floats(0.5, 1.5)))
    return replace(question, device_bytes=device_bytes, host_bytes=host_bytes)


def ceiling_of(question: Question) -> float:
    found = BlockCeilings(question, BlockTimes(question)).ceiling()
    return 0.0 if found is None else found.tokens_per_s


@pytest.mark.slow
@pytest.mark.parametrize("generate", ["1", "8", "100-200"])
@settings(max_examples=scaled(2))
@given(st.data(), st.floats(1.01, 3.0))
def test_more_of_a_resource_lowers_no_ceiling(
    generate: str, data: st.DataObject, more: float
) -> None:
    holds_with_more(data.draw(few_requests(generate)), more)


@pytest.mark.slow
def test_more_of_a_resource_lowers_no_ceiling_where_the_cpu_saves_copies() -> None:
    holds_with_more(SAVES_COPIES, 1.5)


def holds_with_more(question: Question, more: float) -> None:
    """Of any resource."""
    hardware = question.hardware
    link, host = hardware.link, hardware.host
    assert host.disk_bytes_per_s is not None
    larger = {
        "device": replace(question, device_bytes=int(question.device_bytes * more)),
        "host": replace(question, host_bytes=int(question.host_bytes * more)),
        "link": replace(
            question,
            hardware=replace(
                hardware, link=replace(link, h2d_bytes_per_s=link.h2d_bytes_per_s * more)
            ),
        ),
        "disk": with_disk(question, host.disk_bytes_per_s * more),
        **dict(larger_machines(question)),
    }
    before = ceiling_of(question)
    for change, machine in larger.items():
        assert ceiling_of(machine) >= before * (1 - 1e-8), change


def test_shares_find_what_starts_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all layers are the CPU's, in numbers that no start has."""
    question = with_disk(ask("opt-30b", "a4000", prompt="2048", generate="64", requests=60), None)
    found = OfflineSearch(question).best(AUTO)
    monkeypatch.setattr(OfflineSearch, "_rounded", lambda _, best, __: best)
    others = OfflineSearch(question).best(AUTO)
    assert found is not None
    assert others is not None
    assert found.tokens_per_s > others.tokens_per_s
