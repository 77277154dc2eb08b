"""Torch's linear maps: the plain one, and its operators over packed weights.

Each form is prepared once per weight, as a model would at its start. Forms that this processor or
build of torch lacks are left out.
"""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tandem.probes.linear_cases import Copies
from tandem.quant.quantized_weight import QuantizedWeight

Multiply = Callable[[Tensor], Tensor]  # float32 [rows, inputs] to [rows, outputs], its own type
_PACKED_ROWS = 32  # that oneDNN is told to expect


def torch_forms(copies: Copies) -> dict[str, list[Multiply]]:
    """By name, the form over each of the copies."""
    forms: dict[str, list[Multiply]] = {}
    for name, prepare in _preparations(copies).items():
        try:
            calls = prepare()
            calls[0](torch.zeros(2, copies.shape.inputs))
        except (RuntimeError, NotImplementedError):  # not on this processor
            continue
        forms[name] = [_ended(call, gated=copies.shape.gated) for call in calls]
    return forms


def _preparations(copies: Copies) -> dict[str, Callable[[], list[Multiply]]]:
    if copies.kind.format is not None:
        weights = copies.quantized
        if copies.kind.format.bits == 4:
            return {"int4pack": lambda: [_int4pack(w) for w in weights]}
        return {
            "int8pack, a scale per row": lambda: [_int8pack(w) for w in weights],
            "dynamic int8 activations, a scale per row": lambda: _dynamic(weights),
        }
    dtype = copies.kind.dtype
    forms = {"linear": lambda: [_plain(w) for w in copies.tensors]}
    if dtype == torch.float32:
        forms["oneDNN packed"] = lambda: [_onednn(w) for w in copies.tensors]
    else:
        forms["linear, weights in float32"] = lambda: _in_float32(copies.tensors)
        forms["oneDNN packed"] = lambda: [_onednn(w) for w in copies.tensors]
    if dtype == torch.float16:
        forms["FBGEMM packed"] = lambda: [_fbgemm(w) for w in copies.tensors]
    return forms


def _ended(call: Multiply, *, gated: bool) -> Multiply:
    if not gated:
        return call

    def end(x: Tensor) -> Tensor:
        gate, up = call(x).chunk(2, 1)
        return functional.silu(gate).mul_(up)

    return end


def _plain(weight: Tensor) -> Multiply:
    return lambda x: functional.linear(x.to(weight.dtype), weight)


def _in_float32(weights: Sequence[Tensor]) -> list[Multiply]:
    """Twice the memory; half as many copies exceed the caches as well."""
    return [_plain(weight.float()) for weight in weights[: max(2, len(weights) // 2)]]


def _onednn(weight: Tensor) -> Multiply:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda x: multiply(x.to(weight.dtype), packed, None, "none", [], "")


def _fbgemm(weight: Tensor) -> Multiply:
    packed = torch.ops.quantized.linear_prepack_fp16(weight.float(), None)
    return lambda x: torch.ops.quantized.linear_dynamic_fp16(x, packed)


def _int4pack(weight: QuantizedWeight) -> Multiply:
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weight.whole_numbers().int(), 1)
    scales = weight.scales.float().t()
    # torch means (q - 8) s + offset.
    offsets = (8.0 - weight.zeros.float().t()) * scales
    both = torch.stack((scales, offsets), 2).contiguous()
    multiply, group = torch.ops.aten._weight_int4pack_mm_for_cpu, weight.format.group
    return lambda x: multiply(x, packed, group, both)


def _int8pack(weight: QuantizedWeight) -> Multiply:
    q, scales = _per_row(weight)
    return lambda x: torch.ops.aten._weight_int8pack_mm(x, q, scales)


def _dynamic(weights: Sequence[QuantizedWeight]) -> list[Multiply]:
    calls: list[Multiply] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch means to move these elsewhere
        for weight in weights:
            q, scales = _per_row(weight)
            zeros = torch.zeros(len(scales), dtype=torch.long)
            rounded = torch.quantize_per_channel(
                q.float() * scales[:, None], scales.double(), zeros, 0, torch.qint8
            )
            calls.append(_dynamic_call(torch.ops.quantized.linear_prepack(rounded, None)))
    return calls


def _dynamic_call(packed: object) -> Multiply:
    # Seven bits: with eight, sums of two products exceed 16 bits on processors without VNNI.
    return lambda x: torch.ops.quantized.linear_dynamic(x, packed, True)


def _per_row(weight: QuantizedWeight) -> tuple[Tensor, Tensor]:
    """Signed whole numbers and float32 scales for operators that know no groups."""
    values = weight.dequantize()
    scales = values.abs().amax(1).clamp(min=1e-12) / 127
    return (values / scales[:, None]).round().to(torch.int8), scales
