"""What the Python side of the kernels never asks for, and the binding refuses all the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tests.unit.native.stage_case import POOL

from tandem.kernels import _native
from tandem.kernels.native_linear import Activation, LinearEnd
from tandem.kernels.native_pool import Signal

ISA = POOL.isa
HANDLE = POOL.handle


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def plan(kind: Callable[..., Any] = _native.AttentionPlan, /, **changed: Any) -> Any:
    """Of one token that sees ten keys in the first of two blocks."""
    arguments: dict[str, Any] = {
        "heads": 4,
        "kv_heads": 2,
        "block_size": 16,
        "head_dim": 8,
        "query_start": ints(0, 1),
        "positions": ints(9),
        "block_table": ints(0).reshape(1, 1),
        "block_index": None,
        "token_index": None,
        "num_threads": 1,
    }
    return kind(**arguments | changed)


@pytest.mark.parametrize("kind", [_native.AttentionPlan, _native.PrefillPlan])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": 3}, r"heads \(3\) must be a positive multiple of kv_heads \(2\)"),
        ({"heads": 0}, "positive multiple"),
        ({"kv_heads": 0}, "positive multiple"),
        ({"head_dim": 0}, "head_dim must be a multiple of 4 up to 512, not 0"),
        ({"head_dim": 516}, "not 516"),
        ({"block_size": 0}, "block_size must be 1 to 4096"),
        ({"block_size": 4097}, "block_size must be 1 to 4096"),
        ({"code_bits": 3}, "quantized to 8 or 4 bits, not 3"),
        ({"num_threads": 0}, "num_threads must be positive"),
        ({"token_index": np.zeros(2, np.int64)}, r"token_index must have the shape \[1\]"),
        ({"token_index": ints(0)}, "token_index must be int64"),
        ({"positions": ints(9).reshape(1, 1)}, r"positions must be \[tokens\]"),
        ({"positions": np.zeros(1, np.int64)}, "positions must be int32"),
        ({"query_start": np.zeros(2, np.int64)}, "query_start must be int32"),
        ({"query_start": ints(0, 7, 1)[::2]}, "query_start must be contiguous"),
        ({"block_table": ints(0)}, r"block_table must be \[rows, max_blocks\]"),
    ],
)
def test_plans(kind: Callable[..., Any], changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(kind, **changed)


def shifted(tensor: Tensor) -> Tensor:
    """As large, two bytes further on."""
    memory = torch.zeros(tensor.nbytes + 4, dtype=torch.uint8)
    return torch.frombuffer(
        memory.numpy().data, dtype=tensor.dtype, offset=2, count=tensor.numel()
    ).view(tensor.shape)


@pytest.mark.parametrize("kind", [_native.AttentionPlan, _native.PrefillPlan])
@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("out", torch.zeros(1, 4, 4), r"out must have the shape \[1, 4, 8\], not \[1, 4, 4\]"),
        ("out", torch.zeros(2, 4, 8), "out must have the shape"),
        ("out", torch.zeros(1, 4, 8).half(), "out must be float32"),
        ("out", torch.zeros(1, 8, 4).mT, "out must be contiguous"),
        ("out", shifted(torch.zeros(1, 4, 8)), "out must lie at a multiple of 4 bytes"),
        ("lse", torch.zeros(4), "lse must have the shape"),
        ("lse", torch.zeros(1, 4).double(), "lse must be float32"),
        ("lse", torch.zeros(1, 8)[:, ::2], "lse must be contiguous"),
        ("q", torch.zeros(4, 8), r"q must be \[tokens, heads, head_dim\]"),
        ("q", torch.zeros(0, 4, 8), "q must hold at least 1 tokens, not 0"),
        ("pages", torch.zeros(2, 2, 2, 8, 8), "pages must have the shape"),
        ("pages", torch.zeros(2, 2, 2, 16, 8).double(), "pages must be float32, float16"),
    ],
)
def test_attention(kind: Callable[..., Any], name: str, wrong: Tensor, message: str) -> None:
    tensors = {
        "q": torch.zeros(1, 4, 8),
        "pages": torch.zeros(2, 2, 2, 16, 8),
        "out": torch.full((1, 4, 8), 7.0),
        "lse": torch.full((1, 4), 7.0),
    }
    made = plan(kind)
    with pytest.raises(ValueError, match=message):
        _native.attention(HANDLE, made, **tensors | {name: wrong}, scale=1.0, soft_cap=0.0, isa=ISA)
    assert bool((tensors["out"] == 7).all())
    _native.attention(HANDLE, made, **tensors, scale=1.0, soft_cap=0.0, isa=ISA).run()
    assert not bool(tensors["out"].any())


def test_an_instruction_set_that_this_processor_has_not() -> None:
    known = {"portable", "avx2", "avx512", "avx512vnni", "amx", "neon", "neondot"}
    missing = sorted(known - set(native.supported_isas()))
    assert missing  # no processor has both families
    for name in missing:
        message = f"this processor does not support the instruction set '{name}': choose one of"
        with pytest.raises(ValueError, match=message):
            _native.choose_isa(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 5}, "bits must be 4 or 8, not 5"),
        ({"q": torch.zeros(3, 48, dtype=torch.uint8)}, "groups must be of 32, 64 or 128 inputs"),
        ({"q": torch.zeros(3, 0, dtype=torch.uint8)}, "inputs must be 1 to"),
        ({"q": torch.zeros(64, dtype=torch.uint8)}, r"q must be \[outputs, packed inputs\]"),
        ({"q": torch.zeros(3, 64, dtype=torch.int8)}, "q must be uint8"),
        ({"q": torch.zeros(64, 3, dtype=torch.uint8).t()}, "q must be contiguous"),
        ({"scales": torch.ones(2).half()}, r"scales must be \[outputs, groups\]"),
        ({"scales": torch.ones(2, 2).half()}, r"scales must have the shape \[3, 2\]"),
        ({"scales": torch.ones(3, 2)}, "scales must be float16"),
        ({"scales": torch.ones(3, 0).half()}, "zeros must have the shape"),
        ({"zeros": torch.zeros(3, 1, dtype=torch.uint8)}, "zeros must have the shape"),
        ({"zeros": torch.zeros(3, 2)}, "zeros must be uint8"),
        ({"bias": torch.zeros(4)}, r"bias must have the shape \[3\]"),
    ],
)
def test_quantized_maps(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "q": torch.zeros(3, 64, dtype=torch.uint8),
        "bits": 8,
        "scales": torch.ones(3, 2).half(),
        "zeros": torch.zeros(3, 2, dtype=torch.uint8),
    }
    _native.LinearWeight.quantized(**arguments)
    with pytest.raises(ValueError, match=message):
        _native.LinearWeight.quantized(**arguments | change)


def test_products() -> None:
    weight, x = _native.LinearWeight(torch.ones(3, 8)), torch.ones(2, 8)
    kept = torch.full((2, 3), 7.0)
    for y, end, message in (
        (torch.ones(2, 1), LinearEnd.GATED, "must have an even number of outputs"),
        (kept.as_strided((2, 3), (1, 1)), LinearEnd.STORE, "rows of y must not overlap"),
        (torch.ones(3, 2).t(), LinearEnd.STORE, "y must be contiguous"),
        (kept.half(), LinearEnd.STORE, "y must be float32"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.linear(HANDLE, weight, x, y, end, Activation.NONE, ISA)
    assert bool((kept == 7).all())
    with pytest.raises(ValueError, match=r"out must have the shape \[3, 8\]"):
        _native.dequantize(HANDLE, weight, torch.ones(8, 3), ISA)


def test_appends_and_copies() -> None:
    k, slot = torch.zeros(1, 2, 8), torch.tensor([0])
    quantized = torch.zeros(2, 100, dtype=torch.uint8)
    for pages, bits, size, message in (
        (quantized, 8, 0, "block_size must be positive"),
        (quantized, 8, -16, "block_size must be positive"),
        (quantized, 8, 16, "pages must have the shape"),
        (torch.zeros(2, 2, 16, 8), 0, 0, r"pages must be \[num_blocks, 2, kv_heads"),
        (torch.zeros(2, 3, 2, 16, 8), 0, 0, "pages must have the shape"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.append(HANDLE, pages, k, k, slot, bits, size)
    pool = torch.zeros(2, 6, 4)
    for source, target, message in (
        (torch.zeros(2, 6), torch.zeros(2, 6), r"source must be \[layers, num_blocks"),
        (pool[:, :, :].view(-1)[:32].view(2, 4, 4), pool.view(-1)[8:40].view(2, 4, 4), "overlap"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.copy_blocks(HANDLE, source, slot, target, slot)
    for read, written, message in (
        (slot.view(1, 1), slot, r"source_ids must be \[blocks\]"),
        (slot, slot.int(), "target_ids must be int64"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.copy_blocks(HANDLE, pool, read, torch.zeros(2, 6, 4), written)


def square_layer(heads: int = 1, head_dim: int = 8) -> _native.Layer:
    """Of eight hidden elements and one KV head."""
    norm, square = _native.Norm(torch.ones(8), None, 0.0), _native.LinearWeight(torch.ones(8, 8))
    return _native.Layer(
        heads=heads, kv_heads=1, head_dim=head_dim, attention_norm=norm,
        qkv=_native.LinearWeight(torch.ones((heads + 2) * head_dim, 8)), query_norm=None,
        key_norm=None, output=_native.LinearWeight(torch.ones(8, heads * head_dim)),
        post_attention_norm=None, mlp_norm=norm, up=square, down=square, post_mlp_norm=None,
        activation=Activation.RELU, gated=False,
    )  # fmt: skip


def test_stacks() -> None:
    with pytest.raises(ValueError, match="must agree in hidden size and heads"):
        _native.LayerStack([square_layer(), square_layer(2, 4)], [0, 0], [0, 0])
    with pytest.raises(ValueError, match="a stack needs layers"):
        _native.LayerStack([square_layer(), None], [0, 0], [0, 0])  # type: ignore[list-item]
    stack = _native.LayerStack([square_layer()], [0], [0])
    pages, slots, x = torch.zeros(1, 2, 2, 1, 16, 8), torch.tensor([9]), torch.ones(1, 8)
    fitting: dict[str, Any] = {"heads": 1, "kv_heads": 1}
    for changed, message in (
        ({"heads": 2}, "the plan is for other heads"),
        ({"head_dim": 4}, "the plan is for other heads"),
        ({"token_index": np.array([1])}, "the plan must not select tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            stack.run(HANDLE, ISA, x, [], pages, slots, [(plan(**fitting | changed), None)], 1.0)
    both: list[tuple[Any, Any]] = [(plan(**fitting), None), (plan(**fitting, block_size=32), None)]
    two = _native.LayerStack([square_layer(), square_layer()], [0, 1], [0, 0])
    with pytest.raises(ValueError, match="the plans are for different pages"):
        two.run(HANDLE, ISA, x, [], pages.repeat(2, 1, 1, 1, 1, 1), slots, both, 1.0)
    assert not bool(pages.any())
    assert bool((x == 1).all())
    angles = torch.ones(1, 5)
    with pytest.raises(ValueError, match="head_dim must be even to be rotated"):
        square_layer(1, 5).pre(HANDLE, ISA, x, angles, angles, torch.ones(1, 15))


def test_experts_of_another_size_than_their_norm() -> None:
    wide, square, router = (_native.LinearWeight(torch.ones(n, 8)) for n in (16, 8, 1))
    hits = torch.zeros(1, dtype=torch.int64)
    experts = _native.Experts(router, [wide], [square], 1, True, hits)
    for norm, gated, message in (
        (_native.Norm(torch.ones(4), None, 0.0), True, "experts and norm must have the same size"),
        (_native.Norm(torch.ones(8), None, 0.0), False, "experts are gated"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.Mlp(norm, None, None, None, Activation.SILU, gated, experts=experts)
    norm = _native.Norm(torch.ones(8), None, 0.0)
    dense = _native.Mlp(norm, square, square, None, Activation.RELU, False)
    chosen, shares = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1)
    with pytest.raises(ValueError, match="there are no experts to choose"):
        dense.run(HANDLE, ISA, torch.ones(1, 8), chosen, shares)


def test_signals_and_threads() -> None:
    with pytest.raises(ValueError, match="spin_us must not be negative"):
        _native.Pool(1, spin_us=-1)
    with pytest.raises(ValueError, match="multiple of 4 and not 0"):
        Signal(address=0)
    for after, then in (([(None, 1)], None), ([], (None, 1))):
        task = _native.nothing(HANDLE)
        with pytest.raises(ValueError, match="a point needs a signal"):
            task.submit(after, then)  # type: ignore[arg-type]
        task.run()  # it was not submitted
    with pytest.raises(ValueError, match="at least one round"):
        _native.spin_round_trips(0)
