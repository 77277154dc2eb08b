"""States of a layer: what is live, joining and splitting."""

from itertools import chain

import pytest
import torch

from tandem.models.layer_state import LayerState
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.models.resolve import resolve_model
from tandem.spec.dtype import DType
from tandem.spec.operations import Stage


def state(tokens: int) -> LayerState:
    return LayerState(torch.arange(tokens), torch.randn(tokens, 4))


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(resolve_model("demo"), DType.FLOAT32)


def test_split_parts_are_views_of_the_whole() -> None:
    whole = state(5)
    whole.q = torch.randn(5, 2, 3)
    first, second = whole.split([2, 3])
    second.residual.add_(1.0)
    assert first.num_tokens == 2
    assert torch.equal(second.residual, whole.residual[2:])
    assert torch.equal(second.buffers()["q"], whole.q[2:])
    assert second.positions.tolist() == [2, 3, 4]


def test_joined_states_own_their_memory() -> None:
    parts = [state(2), state(3)]
    joined = LayerState.cat(parts)
    joined.residual.zero_()
    assert parts[0].residual.abs().sum() > 0
    assert joined.positions.tolist() == [0, 1, 0, 1, 2]


def test_states_at_different_cuts_cannot_be_joined() -> None:
    ahead = state(2)
    ahead.x = torch.randn(2, 4)
    with pytest.raises(ValueError, match="same cut"):
        LayerState.cat([state(2), ahead])


def test_a_state_s_size_is_what_it_keeps_alive() -> None:
    whole = torch.randn(5, 8, 3)
    held = state(5)
    alone = held.positions.nbytes + held.residual.nbytes
    assert held.size_bytes == alone
    held.q, held.k, held.v = whole.split_with_sizes([4, 2, 2], dim=1)
    assert held.size_bytes == alone + whole.nbytes
    # turned queries and keys are a copy; the values keep the whole product
    held.q, held.k = torch.randn(5, 6, 3).split_with_sizes([4, 2], dim=1)
    assert held.size_bytes == alone + whole.nbytes + 5 * 6 * 3 * 4
    held.rotations = ((torch.randn(5, 1, 6), torch.randn(5, 1, 6)),)
    assert held.size_bytes == alone + whole.nbytes + 5 * 6 * 3 * 4 + 2 * 5 * 6 * 4
    parts = held.split([2, 3])
    assert sum(part.size_bytes for part in parts) == held.size_bytes


def test_an_owned_part_keeps_nothing_of_the_whole_alive() -> None:
    whole = state(5)
    whole.q = torch.randn(5, 2, 3)
    whole.rotations = ((torch.randn(5, 1, 6), torch.randn(5, 1, 6)),)
    part = whole.split([2, 3])[1]
    owned = part.owned()
    pairs = [
        (owned.positions, part.positions),
        *zip(chain(*owned.rotations), chain(*part.rotations), strict=True),
    ]
    pairs += [(tensor, part.buffers()[name]) for name, tensor in owned.buffers().items()]
    assert len(pairs) == 5
    for mine, original in pairs:
        assert torch.equal(mine, original)
        assert mine.untyped_storage().nbytes() == mine.nbytes


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="do not add up"):
        state(4).split([2, 3])


def test_a_stage_with_attention_is_not_the_models(model: Model) -> None:
    with pytest.raises(ValueError, match="outside attention"):
        model.run(model.stages(0).attend, 0, LayerState(torch.arange(1), torch.zeros(1, 256)))
    with pytest.raises(ValueError, match="outside attention"):
        model.run(Stage(0, 99), 0, LayerState(torch.arange(1), torch.zeros(1, 256)))


def test_a_state_at_another_cut_is_refused(model: Model) -> None:
    with pytest.raises(ValueError, match="no 'attention'"):
        model.run(model.stages(0).post, 0, LayerState(torch.arange(1), torch.zeros(1, 256)))
