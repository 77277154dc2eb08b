"""Branches of a programme whose layers are not in whole numbers."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import find_offline_policy
from tandem.planner.offline.relaxation.block_programmes import BlockProgrammes, Sequences
from tandem.planner.offline.relaxation.whole_layers import WholeLayers
from tandem.planner.offline.search import OfflineSearch

EVERY = WholeLayers.any_of(8)


def test_what_lies_between_two_whole_numbers_is_left_out() -> None:
    assert list(EVERY.branches(7.72, 1.5)) == [
        WholeLayers((0, 7), (0, 8)),
        WholeLayers((8, 8), (0, 8)),
    ]
    assert list(EVERY.branches(8.0, 1.5)) == [
        WholeLayers((0, 8), (0, 1)),
        WholeLayers((0, 8), (2, 8)),
    ]


def test_what_the_solver_is_off_by_is_whole() -> None:
    assert not list(EVERY.branches(8 - 1e-9, 2 + 1e-9))
    assert not list(EVERY.branches(0.0, 0.0))


def test_the_ceiling_is_reached_by_whole_layers() -> None:
    """By shares, a part of one would stay on the accelerator beside two slots, as in no plan."""
    model = short(plannable_spec("opt-30b"), 8)
    question = ask(model, "a4000", "park-egger", prompt="256", generate="32", requests=40)
    question = replace(question, device_bytes=4_500_000_000, max_num_batched_tokens=512)
    search = OfflineSearch(question)
    ceiling = BlockCeilings(question, search.times).ceiling()
    best = search.best(find_offline_policy("auto"))
    assert ceiling is not None
    assert best is not None
    assert best.tokens_per_s <= ceiling.tokens_per_s
    assert ceiling.streamed * 8 == pytest.approx(round(ceiling.streamed * 8), abs=1e-5)
    programmes, most = BlockProgrammes(search.times), 0.0
    for kind in programmes.kinds():
        by_shares = programmes.least(kind, Sequences(40, 40, 40, 1.0, 40))
        if by_shares is not None:
            most = max(most, 40 * 32 / by_shares.shares.block_s)
    assert most > 1.01 * ceiling.tokens_per_s
