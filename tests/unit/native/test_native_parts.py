"""Norms, maps and experts that do not fit each other, or a step, are refused by name."""

from typing import Any

import pytest
import torch

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tests.unit.native.stage_case import POOL

from tandem.kernels import _native
from tandem.kernels.native_linear import Activation, NativeLinear


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
