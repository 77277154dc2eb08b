"""States of a layer: what is live, joining and splitting."""

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


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="do not add up"):
        state(4).split([2, 3])


def test_a_stage_with_attention_is_not_the_models(model: Model) -> None:
    with pytest.raises(ValueError, match="outside attention"):
        model.run(model.stages.attend, 0, LayerState(torch.arange(1), torch.zeros(1, 256)))
    with pytest.raises(ValueError, match="outside attention"):
        model.run(Stage(0, 99), 0, LayerState(torch.arange(1), torch.zeros(1, 256)))


def test_a_state_at_another_cut_is_refused(model: Model) -> None:
    with pytest.raises(ValueError, match="no 'attention'"):
        model.run(model.stages.post, 0, LayerState(torch.arange(1), torch.zeros(1, 256)))
