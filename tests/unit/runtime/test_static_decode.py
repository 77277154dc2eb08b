"""A step of decode, captured once and replayed, gives the tokens of steps that are run anew.

Sizes, addresses and numbers of the host's are in a replay what they were at the capture, as in a
CUDA graph: what a whole step's graph needs of stages, appends, attention and merging.
"""

from itertools import groupby
from pathlib import Path

import pytest
import torch
from tests.parity.tiny_models import CASES, Case, build
from tests.support.frozen_ops import FrozenOps
from tests.unit.runtime.static_decode import StaticDecode

from tandem.models.load import load_model

_POSITIONS = [0, 9, 23]  # of rows that begin, grow into another block, and leave a window behind
_STEPS = 9
_OF_EACH = 2  # cases of an architecture


def _family(case: Case) -> str:
    return case.id.partition("-")[0]


_CHOSEN = [case for _, cases in groupby(CASES, _family) for case in [*cases][:_OF_EACH]]
_MIXTURES = [case for case in _CHOSEN if _family(case) in ("mixtral", "qwen3moe")]
_DENSE = [case for case in _CHOSEN if case not in _MIXTURES]


def capture(decode: StaticDecode) -> FrozenOps:
    """A step, which is done too."""
    frozen = FrozenOps()
    with torch.inference_mode(), frozen:
        decode.step()
    return frozen


@pytest.mark.parametrize("case", _DENSE, ids=lambda case: case.id)
def test_replays_give_the_tokens_of_eager_steps(case: Case, tmp_path: Path) -> None:
    build(case, tmp_path)
    model = load_model(tmp_path)
    eager, graphed = StaticDecode(model, _POSITIONS), StaticDecode(model, _POSITIONS)
    frozen = capture(graphed)
    assert not frozen.refused
    with torch.inference_mode():
        eager.step()
        seen: set[tuple[int, ...]] = set()
        for _ in range(_STEPS):
            assert graphed.tokens == eager.tokens
            seen.add(tuple(eager.tokens))
            eager.step()
            frozen.replay()
    assert len(seen) > 1  # tokens differ from step to step, or nothing is compared


@pytest.mark.parametrize("case", _MIXTURES, ids=lambda case: case.id)
def test_mixtures_ask_the_host_which_experts_were_chosen(case: Case, tmp_path: Path) -> None:
    build(case, tmp_path)
    frozen = capture(StaticDecode(load_model(tmp_path), _POSITIONS))
    assert "bincount" in frozen.refused  # so no graph holds them yet


def test_a_number_of_the_host_s_shows() -> None:
    position, out = torch.tensor([2.0]), torch.zeros(1)
    with FrozenOps() as frozen:
        out.copy_(position * 3)
    position.fill_(5.0)
    frozen.replay()
    assert out.tolist() == [15.0]
    with FrozenOps() as frozen:
        number = int(position)
        out.copy_(torch.ones(1) * number)
    assert "_local_scalar_dense" in frozen.refused
    position.fill_(7.0)
    frozen.replay()
    assert out.tolist() == [5.0]


def test_sizes_by_values_and_numbers_brought_to_the_device_are_refused() -> None:
    with FrozenOps() as frozen:
        torch.zeros(3).nonzero()
        torch.tensor(2.0)
    assert frozen.refused == ["nonzero", "lift_fresh"]
