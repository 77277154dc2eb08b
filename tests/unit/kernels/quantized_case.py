"""Attention cases over pages of few bits: keys and values that such pages hold without loss."""

from dataclasses import replace
from typing import Any

import torch
from tests.unit.kernels.attention_case import AttentionCase, make_case
from torch import Tensor

from tandem.kernels.narrow_floats import decode, encode
from tandem.kernels.pages import PageShape
from tandem.quant.kv_format import dequantize, quantize


def make_quantized_case(
    rows: list[tuple[int, int]], bits: int, *, kv_heads: int = 2, **options: Any
) -> AttentionCase:
    """`make_case`, its keys and values quantized and dequantized."""
    case = make_case(rows, kv_heads=kv_heads, **options)
    return quantized(case, bits)


def make_narrow_case(rows: list[tuple[int, int]], **options: Any) -> AttentionCase:
    """`make_case` over pages of e4m3, as exact attention over them sees it."""
    case = make_case(rows, **options)
    return replace(
        case,
        dtype=torch.uint8,
        sources=(case.keys, case.values),
        keys=[decode(encode(k)) for k in case.keys],
        values=[decode(encode(v)) for v in case.values],
    )


def quantized(case: AttentionCase, bits: int) -> AttentionCase:
    """The same case over pages of `bits`, as exact attention over them sees it."""
    old = case.shape
    shape = PageShape(old.kv_heads, old.block_size, old.head_dim, bits)
    return replace(
        case,
        shape=shape,
        sources=(case.keys, case.values),
        keys=[_as_held(k, shape) for k in case.keys],
        values=[_as_held(v, shape) for v in case.values],
    )


def _as_held(values: Tensor, shape: PageShape) -> Tensor:
    page = shape.quantized
    return dequantize(*quantize(values, page), page)
