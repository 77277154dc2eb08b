"""Logits equal those of Hugging Face transformers on every tiny configuration."""

import copy
import random

import pytest
import torch
from tests.parity.checkpoints import Checkpoints
from tests.parity.dense_attention import forward
from tests.parity.tiny_models import CASES, VOCAB_SIZE, Case
from torch import Tensor

from tandem.kernels.open_pool import open_pool
from tandem.models.layer_state import LayerState
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.dtype import DType
from tandem.spec.operations import Stage, live_buffers
from tandem.spec.parameters import num_parameters, weight_bytes
from tandem.spec.precision import Precision

pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def prompt(length: int) -> Tensor:
    return torch.randint(VOCAB_SIZE, (length,), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("length", [1, 70])
def test_logits_equal_transformers(
    case: Case, length: int, compiled: bool, checkpoints: Checkpoints
) -> None:
    directory, reference = checkpoints.get(case)
    token_ids = prompt(length)
    with torch.no_grad():
        expected = reference.model(token_ids[None]).logits[0]

    logits = forward(load_model(directory, pool=open_pool() if compiled else None), token_ids)

    assert logits.dtype == torch.float32
    assert expected.std() > 0.1  # the comparison would be idle on flat logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT16])
def test_narrow_weights_mean_what_they_mean_widened(
    case: Case, dtype: DType, compiled: bool, checkpoints: Checkpoints
) -> None:
    directory, of_case = checkpoints.get(case)
    reference, token_ids = copy.deepcopy(of_case.model), prompt(24)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(parameter.to(getattr(torch, dtype.value)))
        expected = reference(token_ids[None]).logits[0]
    precision = Precision(dtype, DType.FLOAT32, DType.FLOAT32)

    model = load_model(directory, precision, pool=open_pool() if compiled else None)
    logits = forward(model, token_ids)

    assert model.weights.size_bytes == weight_bytes(model.spec, dtype)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_sizes_are_known_without_loading(case: Case, checkpoints: Checkpoints) -> None:
    directory, reference = checkpoints.get(case)
    model = load_model(directory)
    assert num_parameters(model.spec) == sum(p.numel() for p in reference.model.parameters())
    assert weight_bytes(model.spec, DType.FLOAT32) == model.weights.size_bytes


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT16])
def test_half_precision_is_as_close_to_float32_as_transformers_is(
    case: Case, dtype: DType, checkpoints: Checkpoints
) -> None:
    directory, of_case = checkpoints.get(case)
    reference, token_ids = copy.deepcopy(of_case.model), prompt(24)
    with torch.no_grad():
        exact = reference(token_ids[None]).logits[0]
        theirs = reference.to(getattr(torch, dtype.value))(token_ids[None]).logits[0].float()

    model = load_model(directory, dtype)
    logits = forward(model, token_ids)

    assert model.dtype == getattr(torch, dtype.value)
    # Of each token; where two experts' scores are about equal, 16 bits may choose the other one.
    ours, others = ((made - exact).square().mean(dim=-1) for made in (logits, theirs))
    middle = torch.mean if model.spec.experts is None else torch.median
    assert middle(ours) <= 1.5 * middle(others)


def run_in_random_slices(
    model: Model, stage: Stage, layer: int, state: LayerState, rng: random.Random
) -> None:
    """Cut the stage at random, and at every cut keep nothing but what the operations call live."""
    cuts = sorted(
        rng.sample(range(stage.start, stage.end + 1), k=rng.randint(1, stage.end - stage.start))
    )
    for start, end in zip([stage.start, *cuts], [*cuts, stage.end], strict=True):
        part = LayerState(state.positions.clone(), state.residual.clone())
        for name, tensor in state.buffers().items():
            setattr(part, name, tensor.clone())
        model.run(Stage(start, end), layer, part)
        assert set(part.buffers()) == {b.name for b in live_buffers(model.operations(layer), end)}
        for buffer in live_buffers(model.operations(layer), end):
            assert part.buffers()[buffer.name][0].numel() == buffer.width
        for name in set(state.buffers()) | set(part.buffers()):
            setattr(state, name, getattr(part, name))


def test_a_layer_in_random_slices_equals_the_whole(case: Case, checkpoints: Checkpoints) -> None:
    model, token_ids = load_model(checkpoints.get(case)[0]), prompt(9)
    whole = forward(model, token_ids)
    for seed in range(4):
        rng = random.Random(seed)

        def run(
            model: Model, stage: Stage, layer: int, state: LayerState, rng: random.Random = rng
        ) -> None:
            run_in_random_slices(model, stage, layer, state, rng)

        torch.testing.assert_close(forward(model, token_ids, run), whole, rtol=0, atol=2e-5)


def test_lanes_joined_for_a_stage_equal_lanes_alone(case: Case, checkpoints: Checkpoints) -> None:
    model, sizes = load_model(checkpoints.get(case)[0]), [3, 1, 6]

    def states() -> list[LayerState]:
        ids = [prompt(size) for size in sizes]
        where = [torch.arange(size) + 5 * size for size in sizes]
        return [LayerState(at, model.embed(id_, at)) for id_, at in zip(ids, where, strict=True)]

    def through_a_layer(state: LayerState) -> None:
        model.run(model.stages(0).pre, 0, state)
        assert state.q is not None
        state.attention = state.q * 0.5
        model.run(model.stages(0).post, 0, state)

    alone = states()
    for state in alone:
        through_a_layer(state)
    joined = LayerState.cat(states())
    through_a_layer(joined)

    for part, expected in zip(joined.split(sizes), alone, strict=True):
        torch.testing.assert_close(part.residual, expected.residual, rtol=0, atol=2e-5)
