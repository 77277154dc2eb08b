"""Stages and whole layers on the compiled kernels against torch, and what they refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tandem.kernels import native
from tandem.memory.workspace import LargestStep, workspace_bytes
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.models.weights import allocate_weights
from tandem.plan.binding import TierAttention
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec
from tandem.spec.parameters import mlp_weights

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import CompiledKernels, SplitBatch, rows_of
from tandem.kernels.native_linear import Activation, NativeLinear
from tandem.kernels.native_pages import append_kv
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.models.native_stages import NativeLayers, NativeStages

SPEC = ModelSpec("llama", 64, 24, 2, 6, 2, 8, 40, 512, qk_norm=True, rope=RopeSpec())
SHAPE = PageShape(SPEC.num_kv_heads, 4, SPEC.head_dim)
POOL = NativePool(2)


def models(spec: ModelSpec = SPEC, dtype: torch.dtype = torch.bfloat16) -> tuple[Model, Model]:
    """In torch and compiled, over the same weights."""
    weights = allocate_weights(spec, dtype, torch.device("cpu"))
    fill_dummy_weights(weights, spec, 0, None)
    for parameter in weights.parameters():
        if "norm" in parameter.name:  # made the identity, which would hide a forgotten one
            parameter.tensor.add_(torch.rand(parameter.tensor.shape) - 0.5)
    stages = NativeStages(spec, weights, POOL)
    in_torch = Model(spec, weights, torch.float32)
    return in_torch, Model(spec, weights, torch.float32, stages)


def state(tokens: int = 5) -> LayerState:
    torch.manual_seed(tokens)
    return LayerState(torch.arange(tokens) + 3, torch.randn(tokens, SPEC.hidden_size))


@pytest.mark.parametrize("tokens", [1, 5, 70])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        replace(SPEC, qk_norm=False, gated=False, activation="relu", norm="layer"),
        replace(SPEC, post_norms=True, norm_offset=1.0, activation="gelu_tanh"),
        replace(SPEC, rope=None),
        replace(SPEC, windows=(0, 4), local_rope=RopeSpec(300.0, amplitude=1.5)),
        replace(SPEC, experts=ExpertSpec(7, 3, 20)),
        replace(SPEC, experts=ExpertSpec(5, 1, 33, renormalized=False), activation="gelu"),
    ],
)
def test_stages_equal_torch_s(spec: ModelSpec, tokens: int) -> None:
    results: list[LayerState] = []
    for model in models(spec):
        found = state(tokens)
        model.run(model.stages(1).pre, 1, found)
        assert found.q is not None
        found.finish_attention(found.q * 0.5)
        model.run(model.stages(1).post, 1, found)
        assert found.attention is None
        results.append(found)
    torch.testing.assert_close(results[0].residual, results[1].residual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 70])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        replace(SPEC, gated=False, activation="relu", norm="layer", mlp_bias=True),
        replace(SPEC, post_norms=True, norm_offset=1.0, activation="gelu_tanh"),
        replace(SPEC, experts=ExpertSpec(7, 3, 20)),
    ],
)
def test_an_mlp_alone_is_the_end_of_its_layer(spec: ModelSpec, tokens: int) -> None:
    in_torch, compiled = models(spec)
    names = {weight.name.rpartition(".")[0] for weight in mlp_weights(spec, 1)}
    mlp = {n: a for n, a in compiled.weights.layers[1].items() if n in names or "gate_up" in n}
    alone = NativeLayers(spec, {}, POOL, {1: mlp})
    whole, parts = state(tokens), state(tokens)
    attention = torch.randn(tokens, spec.num_heads, spec.head_dim)
    for found in (whole, parts):
        found.attention = attention.clone()
    compiled.run(compiled.stages(1).post, 1, whole)
    in_torch.run(in_torch.output_stage(1), 1, parts)
    alone.mlp(1, parts)
    torch.testing.assert_close(whole.residual, parts.residual, rtol=1e-5, atol=1e-5)
    assert torch.equal(alone.expert_hits.counts, compiled.expert_hits.counts)


def test_choices_of_experts_are_checked() -> None:
    square, wide = (NativeLinear.of(torch.ones(n, 8)).handle for n in (8, 16))
    hits = torch.zeros(3, dtype=torch.int64)

    def mlp(*maps: Any) -> _native.Mlp:
        norm = _native.Norm(torch.ones(8), None, 1e-5)
        return _native.Mlp(
            norm, None, None, None, Activation.SILU, True, experts=_native.Experts(*maps)
        )

    some = mlp(None, [wide, None, wide], [square, None, square], 2, True, hits)
    x, chosen, shares = torch.ones(4, 8), torch.ones(4, 2, dtype=torch.int64), torch.ones(4, 2)
    for given, message in (
        ((), "choices must be given"),
        ((chosen, None), "experts and shares go together"),
        ((chosen + 2, shares), "experts must exist"),
        ((chosen - 2, shares), "experts must exist"),
        ((chosen[:3], shares), "experts must have the shape"),
        ((chosen, shares[:, :1]), "shares must have the shape"),
        ((chosen.int(), shares), "experts must be int64"),
        ((chosen, shares.double()), "shares must be float32"),
    ):
        with pytest.raises(ValueError, match=message):
            some.run(POOL.handle, POOL.isa, x, *given)
    some.run(POOL.handle, POOL.isa, x, chosen, shares)  # all of them to the expert elsewhere
    assert torch.equal(x, torch.ones(4, 8))
    assert not hits.any()
    router = NativeLinear.of(torch.ones(3, 8)).handle
    for maps, message in (
        ((router, [None] * 3, [None] * 3, 2, True, hits), "at least one expert must be here"),
        ((router, [wide, None, wide], [square] * 3, 2, True, hits), "every expert needs"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.Experts(*maps)
    partial = _native.Experts(router, [wide, None, wide], [square, None, square], 2, True, hits)
    with pytest.raises(ValueError, match="all of its experts"):
        _native.Layer(
            heads=2, kv_heads=1, head_dim=4, attention_norm=_native.Norm(torch.ones(8), None, 0.0),
            qkv=wide, query_norm=None, key_norm=None, output=square, post_attention_norm=None,
            mlp_norm=_native.Norm(torch.ones(8), None, 0.0), up=None, down=None,
            post_mlp_norm=None, activation=Activation.SILU, gated=True, experts=partial,
        )  # fmt: skip


def test_parts_of_an_mlp_that_do_not_fit_are_refused() -> None:
    norm, square = _native.Norm(torch.ones(8), None, 1e-5), NativeLinear.of(torch.ones(8, 8)).handle
    parts: dict[str, Any] = {
        "norm": norm,
        "up": square,
        "down": square,
        "post_norm": None,
        "activation": Activation.SILU,
        "gated": False,
    }
    mlp = _native.Mlp(**parts)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"norm": _native.Norm(torch.ones(4), None, 0.0)}, "up must be 8 x 4, not 8 x 8"),
        ({"gated": True}, "up must be 16 x 8, not 8 x 8"),
        ({"post_norm": _native.Norm(torch.ones(4), None, 0.0)}, "post_mlp_norm must have"),
        ({"up": None}, "either up and down, or experts"),
        ({"int8_activations": True}, "maps of 8 bits only"),
    ]
    for wrong, message in refused:
        with pytest.raises(ValueError, match=message):
            _native.Mlp(**parts | wrong)
    for residual, message in (
        (torch.ones(2, 4), "residual must have the shape"),
        (torch.ones(0, 8), "residual must have tokens"),
        (torch.ones(2, 8).double(), "residual must be float32"),
    ):
        with pytest.raises(ValueError, match=message):
            mlp.run(POOL.handle, POOL.isa, residual)


STEP = TierAttention(  # two rows for the decode kernel, one for the prefill kernel
    token_index=None,
    query_start=np.array([0, 1, 4, 14], np.int32),
    num_decode=1,
    positions=np.array([8, 5, 6, 7, *range(2, 12)], np.int32),
    block_table=np.array([[4, 0, 5], [1, 3, 9], [2, 6, 7]], np.int32),
    block_index=None,
)
SLOTS = torch.tensor([20, 13, 14, 15, 10, 11, *range(24, 32)])


# Layers that differ in window and rotation.
LOCAL = replace(
    SPEC, post_norms=True, attention_soft_cap=0.5, windows=(4, 0), local_rope=RopeSpec(9.0)
)


# A layer with experts after one without.
MIXED = replace(SPEC, experts=ExpertSpec(6, 2, 16, dense_layers=(0,)))


def kernels_of(spec: ModelSpec) -> CompiledKernels:
    scale, soft_cap = spec.attention_scale, spec.attention_soft_cap
    return CompiledKernels(POOL, spec.num_heads, SHAPE, scale, soft_cap)


def planned(rows: slice, spec: ModelSpec = SPEC) -> dict[int, SplitBatch]:
    """Some rows of `STEP` for each window, as the kernels divide them."""
    step = rows_of(STEP, rows.start, rows.stop)
    return {window: kernels_of(spec).plan(step, window) for window in set(spec.layer_windows)}


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


def test_both_count_how_often_tokens_go_to_an_expert() -> None:
    counted: list[torch.Tensor] = []
    for model in models(MIXED):
        for tokens in (5, 70):
            found = state(tokens)
            model.run(model.stages(1).pre, 1, found)
            assert found.q is not None
            found.finish_attention(found.q * 0.5)
            model.run(model.stages(1).post, 1, found)
        counted.append(model.expert_hits.counts)
    assert torch.equal(counted[0], counted[1])
    assert counted[0][0].sum() == 0  # that layer has no experts
    assert counted[0][1].sum() == 75 * 2
    model.expert_hits.clear()
    assert model.expert_hits.by_layer() == ((0,) * 6,) * 2


@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("spec", [SPEC, MIXED, replace(SPEC, experts=ExpertSpec(64, 8, 200))])
def test_memory_of_a_call_is_within_the_predicted_workspace(spec: ModelSpec, tokens: int) -> None:
    _, model = models(spec)
    stages = model.native
    assert stages is not None
    taken = tokens * stages.scratch_token_bytes + stages.scratch_bytes
    assert taken <= workspace_bytes(spec, DType.FLOAT32, LargestStep(tokens, 1))


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


def test_the_head_norms_and_multiplies() -> None:
    hidden = torch.randn(3, SPEC.hidden_size)
    in_torch, compiled = models()
    torch.testing.assert_close(
        compiled.logits(hidden), in_torch.logits(hidden), rtol=1e-5, atol=1e-5
    )


def test_parts_that_do_not_fit_are_refused() -> None:
    norm = _native.Norm(torch.ones(8), None, 1e-5)
    square = NativeLinear.of(torch.ones(8, 8)).handle
    parts: dict[str, Any] = {
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 4,
        "attention_norm": norm,
        "qkv": NativeLinear.of(torch.ones(16, 8)).handle,
        "query_norm": None,
        "key_norm": None,
        "output": square,
        "post_attention_norm": None,
        "mlp_norm": norm,
        "up": NativeLinear.of(torch.ones(16, 8)).handle,
        "down": square,
        "post_mlp_norm": norm,
        "activation": Activation.SILU,
        "gated": True,
    }
    layer = _native.Layer(**parts)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"heads": 3}, "qkv must be 20 x 8, not 16 x 8"),
        ({"heads": 0}, "a layer needs heads"),
        ({"gated": False}, "up must be 8 x 8, not 16 x 8"),
        ({"mlp_norm": _native.Norm(torch.ones(4), None, 0.0)}, "mlp_norm must have the size 8"),
        (
            {"post_attention_norm": _native.Norm(torch.ones(4), None, 0.0)},
            "post_attention_norm must",
        ),
        ({"post_mlp_norm": _native.Norm(torch.ones(4), None, 0.0)}, "post_mlp_norm must have"),
        ({"query_norm": norm}, "query_norm must have the size 4"),
        ({"output": NativeLinear.of(torch.ones(8, 4)).handle}, "output must be 8 x 8"),
    ]
    hits = torch.zeros(8, dtype=torch.int64)
    experts = _native.Experts(square, [parts["up"]] * 8, [square] * 8, 2, True, hits)
    refused += [
        ({"experts": experts}, "either up and down, or experts"),
        ({"up": None}, "either up and down, or experts"),
        ({"up": None, "down": None}, "either up and down, or experts"),
        ({"up": None, "down": None, "experts": experts}, "have no norm after"),
    ]
    for wrong, message in refused:
        with pytest.raises(ValueError, match=message):
            _native.Layer(**parts | wrong)
    for maps, message in (
        (
            (square, [parts["up"]] * 7, [square] * 7, 2, True, hits),
            "router must be 7 x 8, not 8 x 8",
        ),
        ((square, [parts["up"]] * 8, [square] * 8, 9, True, hits), "not more than all"),
        ((square, [parts["up"]] * 8, [square] * 8, 0, True, hits), "a token needs experts"),
        ((square, [parts["up"]] * 8, [square] * 7, 2, True, hits), "every expert needs"),
        ((square, [square] * 8, [square] * 8, 2, True, hits), "up must be 16 x 8, not 8 x 8"),
        ((square, [parts["up"]] * 8, [square] * 8, 2, True, hits[1:]), "hits must have the shape"),
        ((square, [parts["up"]] * 8, [square] * 8, 2, True, hits.int()), "hits must be int64"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.Experts(*maps)
    x, angle, qkv = torch.ones(2, 8), torch.ones(2, 4), torch.ones(2, 16)
    for arguments, message in (
        ((x.double(), None, None, qkv), "residual must be float32"),
        ((x[:, :4], None, None, qkv), "residual must be contiguous"),
        ((x[:0], None, None, qkv[:0]), "residual must have tokens"),
        ((x, angle, None, qkv), "cos and sin go together"),
        ((x, angle[:1], angle, qkv), "cos must have the shape"),
        ((x, angle, angle, qkv[:, :8]), "qkv must have the shape"),
    ):
        with pytest.raises(ValueError, match=message):
            layer.pre(POOL.handle, POOL.isa, *arguments)
    with pytest.raises(ValueError, match="attention must have the shape"):
        layer.post(POOL.handle, POOL.isa, x[:1], x)
