"""All layers of a step in one compiled call: equal to their stages, or refused whole."""

from dataclasses import replace

import pytest
import torch

from tandem.kernels import native
from tandem.spec.model import ModelSpec

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tests.unit.native.stage_case import (
    LOCAL,
    MIXED,
    POOL,
    SLOTS,
    SPEC,
    STEP,
    kernels_of,
    models,
    planned,
    state,
)

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import SplitBatch
from tandem.kernels.native_linear import Activation, NativeLinear
from tandem.kernels.native_pages import append_kv


@pytest.mark.parametrize(
    "spec", [SPEC, LOCAL, replace(LOCAL, windows=(3, 3), rope=None, local_rope=None), MIXED]
)
@pytest.mark.parametrize("rows", [slice(0, 3), slice(0, 2), slice(2, 3)])
def test_all_layers_are_their_stages_and_the_attention_between(
    rows: slice, spec: ModelSpec
) -> None:
    _, model = models(spec)
    assert model.native is not None
    first, end = STEP.query_start[rows.start], STEP.query_start[rows.stop]
    tokens, slots, plans = int(end - first), SLOTS[first:end], planned(rows, spec)
    for plan in plans.values():
        assert (plan.decode is not None) == (rows.start == 0)
        assert (plan.prefill is not None) == (rows.stop == 3)
    pages = torch.randn(SPEC.num_layers, 8, 2, SPEC.num_kv_heads, 4, SPEC.head_dim)
    ours, theirs = pages.clone(), pages.clone()
    whole, parts = state(tokens), state(tokens)
    kernels = kernels_of(spec)

    model.native.run_layers(whole, ours, slots, plans)
    for layer in range(SPEC.num_layers):
        model.run(model.stages(layer).pre, layer, parts)
        assert parts.q is not None
        assert parts.k is not None
        assert parts.v is not None
        append_kv(POOL, theirs[layer], parts.k, parts.v, slots).wait()
        plan = plans[spec.layer_windows[layer]]
        parts.finish_attention(kernels.attend(parts.q, theirs[layer], plan).out)
        model.run(model.stages(layer).post, layer, parts)

    assert torch.equal(ours, theirs)
    assert not torch.equal(ours[-1], pages[-1])
    assert torch.equal(whole.residual, parts.residual)


def test_a_step_that_does_not_fit_is_refused_before_anything_is_written() -> None:
    _, model = models()
    native_stages, plans = model.native, planned(slice(0, 3))
    assert native_stages is not None
    pages = torch.randn(SPEC.num_layers, 8, 2, SPEC.num_kv_heads, 4, SPEC.head_dim)
    before, whole = pages.clone(), state(14)
    residual = whole.residual.clone()
    nothing = {0: SplitBatch(None, None, 14)}
    for wrong_pages, slots, wrong_plans, message in (
        (pages, SLOTS, nothing, "a step needs a plan"),
        (pages, SLOTS[:-1], plans, "slots must have the shape"),
        (pages, SLOTS + 1, plans, "slot 32 does not exist"),
        (pages, SLOTS, planned(slice(0, 2)), "the plans are for 4 tokens, not 14"),
        (pages[:-1], SLOTS, plans, "pages must have the shape"),
        (pages[0], SLOTS, plans, "pages must be"),
        (pages[:, ::2], SLOTS, plans, "pages must be contiguous"),
        (pages.double(), SLOTS, plans, "pages must be float32, float16 or bfloat16"),
        (pages[:, :7].clone(), SLOTS % 28, plans, "block 7"),
    ):
        with pytest.raises(ValueError, match=message):
            native_stages.run_layers(whole, wrong_pages, slots, wrong_plans)
    assert torch.equal(pages, before)
    assert torch.equal(whole.residual, residual)


def test_layers_of_a_stack_must_agree() -> None:
    with pytest.raises(ValueError, match="a stack needs layers"):
        _native.LayerStack([], [], [])


@pytest.mark.parametrize(
    ("plans", "rotations", "message"),
    [
        ([0], [0, 0], "plans must have an entry per layer"),
        ([0, -1], [0, 0], "plans must not be negative"),
        ([0, 0], [], "rotations must have an entry per layer"),
        ([0, 0], [-1, 0], "rotations must not be negative"),
    ],
)
def test_every_layer_names_its_plans_and_rotation(
    plans: list[int], rotations: list[int], message: str
) -> None:
    norm, square = _native.Norm(torch.ones(8), None, 1e-5), NativeLinear.of(torch.ones(8, 8)).handle
    layer = _native.Layer(
        heads=2,
        kv_heads=1,
        head_dim=4,
        attention_norm=norm,
        qkv=NativeLinear.of(torch.ones(16, 8)).handle,
        query_norm=None,
        key_norm=None,
        output=square,
        post_attention_norm=None,
        mlp_norm=norm,
        up=square,
        down=square,
        post_mlp_norm=None,
        activation=Activation.SILU,
        gated=False,
    )
    with pytest.raises(ValueError, match=message):
        _native.LayerStack([layer, layer], plans, rotations)


def test_a_step_without_the_plans_or_rotations_of_a_layer_is_refused() -> None:
    _, model = models(LOCAL)
    assert model.native is not None
    layers = list(model.native._layers.values())
    stack = _native.LayerStack(layers, [0, 1], [1, 0])
    pages, whole = torch.zeros(2, 8, 2, SPEC.num_kv_heads, 4, SPEC.head_dim), state(14)
    angles = torch.ones(14, SPEC.head_dim)
    pairs = [(p.decode_plan, p.prefill_plan) for p in planned(slice(0, 3), LOCAL).values()]
    other = planned(slice(0, 2), LOCAL)[4]
    for rotations, plans, message in (
        ([(angles, angles)], pairs, "the layers take 2 different rotations, not 1"),
        ([(angles, angles), (angles[1:], angles)], pairs, "cos must have the shape"),
        ([], pairs[:1], "the layers take 2 different plans, not 1"),
        ([], [pairs[0], (None, None)], "a step needs a plan"),
        ([], [pairs[0], (other.decode_plan, None)], "the plans are for 4 tokens, not 14"),
    ):
        with pytest.raises(ValueError, match=message):
            stack.run(POOL.handle, POOL.isa, whole.residual, rotations, pages, SLOTS, plans, 1.0)
