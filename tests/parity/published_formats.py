"""Packs weights as published checkpoints have them, from the formats' definitions.

Nothing here uses Tandem's code: numpy and loops, so that a mistake of ours is not made twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

AWQ_OUTPUTS = (0, 2, 4, 6, 1, 3, 5, 7)  # that a word holds, from its lowest bits on
Parts = dict[str, Tensor]
# From a weight [outputs, inputs] to its tensors, and what they mean in float32.
Pack = Callable[[Tensor], tuple[Parts, Tensor]]


@dataclass(frozen=True, slots=True)
class Published:
    """One variety of a format."""

    id: str
    config: Mapping[str, Any]
    pack: Pack
    kept: tuple[str, ...] = field(default=())
    """What names of maps end in that are left as they are."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """`(q - z) s`, unsigned: q [outputs, inputs]; z and s [outputs, groups]."""

    q: np.ndarray
    z: np.ndarray
    s: Tensor

    @property
    def meaning(self) -> Tensor:
        group = self.q.shape[1] // self.z.shape[1]
        z = np.repeat(self.z, group, axis=1)
        steps = torch.from_numpy((self.q - z).astype(np.float32))
        return steps * self.s.float().repeat_interleave(group, 1)


def rounded(
    weight: Tensor, bits: int, group: int, scales: torch.dtype, *, symmetric: bool
) -> Rounded:
    """Whatever numbers come near the weight."""
    outputs, inputs = weight.shape
    size = inputs if group < 0 else group
    groups = weight.numpy().astype(np.float64).reshape(outputs, -1, size)
    top = 2**bits - 1
    if symmetric:
        steps = 2 * np.abs(groups).max(2) / top
    else:
        steps = (groups.max(2).clip(0) - groups.min(2).clip(max=0)) / top
    s = torch.from_numpy(steps).to(scales)
    real = s.double().numpy()
    middle = 2 ** (bits - 1)
    z = np.full(real.shape, middle) if symmetric else np.rint(-groups.min(2).clip(max=0) / real)
    z = z.clip(1, top).astype(np.int64)  # 0 cannot be told in GPTQ's first version
    q = (np.rint(groups / real[..., None]) + z[..., None]).clip(0, top).astype(np.int64)
    return Rounded(q.reshape(outputs, inputs), z, s)


def words(values: np.ndarray, bits: int, axis: int) -> Tensor:
    """int32: neighbours along an axis in one word, the first in its lowest bits."""
    values = np.moveaxis(values, axis, 0)
    per_word = 32 // bits
    made = np.zeros((-(-len(values) // per_word), *values.shape[1:]), np.uint32)
    for index, value in enumerate(values):
        made[index // per_word] |= value.astype(np.uint32) << np.uint32(bits * (index % per_word))
    return torch.from_numpy(np.moveaxis(made, 0, axis).copy().view(np.int32))


def gptq(
    bits: int, group: int, *, symmetric: bool = True, version: int = 1, **config: Any
) -> Published:
    def pack(weight: Tensor) -> tuple[Parts, Tensor]:
        made = rounded(weight, bits, group, torch.float16, symmetric=symmetric)
        inputs = weight.shape[1]
        size = inputs if group < 0 else group
        zeros = made.z - 1 if version == 1 else made.z
        return {
            "qweight": words(made.q.T, bits, 0),
            "qzeros": words(zeros.T, bits, 1),
            "scales": made.s.t().contiguous(),
            "g_idx": torch.tensor([i // size for i in range(inputs)], dtype=torch.int32),
        }, made.meaning

    base = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False}
    layout = {} if version == 1 else {"checkpoint_format": "gptq_v2"}
    name = f"gptq-v{version}-{bits}bit-{group}-{'sym' if symmetric else 'asym'}"
    return Published(name, base | {"sym": symmetric} | layout | config, pack)


def awq(group: int, **config: Any) -> Published:
    def interleaved(values: np.ndarray) -> Tensor:
        order = [8 * (i // 8) + AWQ_OUTPUTS[i % 8] for i in range(values.shape[1])]
        return words(values[:, order], 4, 1)

    def pack(weight: Tensor) -> tuple[Parts, Tensor]:
        made = rounded(weight, 4, group, torch.float16, symmetric=False)
        return {
            "qweight": interleaved(made.q.T),
            "qzeros": interleaved(made.z.T),
            "scales": made.s.t().contiguous(),
        }, made.meaning

    base = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True}
    return Published(f"awq-{group}", base | {"version": "gemm"} | config, pack)


def compressed(
    layout: str, bits: int, group: int, *, symmetric: bool = True, strategy: str | None = None
) -> Published:
    """`pack-quantized`, `int-quantized` or `naive-quantized`."""
    strategy = strategy or ("group" if group > 0 else "channel")

    def pack(weight: Tensor) -> tuple[Parts, Tensor]:
        flat = weight.reshape(1, -1) if strategy == "tensor" else weight
        made = rounded(flat, bits, group, torch.bfloat16, symmetric=symmetric)
        q = made.q.reshape(weight.shape)
        parts = {"weight_scale": made.s.view(-1) if strategy == "tensor" else made.s}
        signed = torch.from_numpy(made.z - 2 ** (bits - 1)).to(torch.int8)
        if layout == "pack-quantized":
            parts["weight_packed"] = words(q, bits, 1)
            parts["weight_shape"] = torch.tensor(weight.shape, dtype=torch.int64)
        else:
            parts["weight"] = torch.from_numpy(q - 2 ** (bits - 1)).to(torch.int8)
        if not symmetric:
            packed = layout == "pack-quantized"
            parts["weight_zero_point"] = words(made.z, bits, 0) if packed else signed
        return parts, made.meaning.view(weight.shape)

    weights = {
        "num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": strategy,
        "group_size": group if group > 0 else None, "actorder": None, "dynamic": False,
    }  # fmt: skip
    name = f"compressed-{layout}-int{bits}-{strategy}{group}-{'sym' if symmetric else 'asym'}"
    return Published(name, _groups(layout, weights), pack)


def _groups(layout: str, weights: dict[str, Any]) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"],
        "config_groups": {"group_0": group}, "quantization_status": "compressed",
    }  # fmt: skip


def fp8(strategy: str, block: tuple[int, int] = (48, 80)) -> Published:
    """`tensor` and `block` as `fp8`, `channel` as compressed-tensors' `float-quantized`."""

    def pack(weight: Tensor) -> tuple[Parts, Tensor]:
        rows, columns = {"tensor": weight.shape, "channel": (1, weight.shape[1]), "block": block}[
            strategy
        ]
        codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
        down, across = -(-weight.shape[0] // rows), -(-weight.shape[1] // columns)
        scales, meaning = torch.empty(down, across), torch.empty(weight.shape)
        for i in range(down):
            for j in range(across):
                place = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
                scales[i, j] = weight[place].abs().max() / 448
                codes[place] = (weight[place] / scales[i, j]).to(torch.float8_e4m3fn)
                meaning[place] = codes[place].float() * scales[i, j]
        name = "weight_scale_inv" if strategy == "block" else "weight_scale"
        return {"weight": codes, name: scales.view(()) if strategy == "tensor" else scales}, meaning

    config: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    if strategy == "block":
        config["weight_block_size"] = list(block)
    elif strategy == "channel":
        weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
        config = _groups("float-quantized", weights)
    return Published(f"fp8-{strategy}", config, pack)


PUBLISHED = (
    gptq(4, 128),
    gptq(4, 32, symmetric=False),
    gptq(4, 64, symmetric=False, version=2),
    gptq(8, 128, desc_act=True),
    gptq(4, -1),
    awq(128),
    awq(64, modules_to_not_convert=["lm_head"]),
    compressed("pack-quantized", 4, 128),
    compressed("pack-quantized", 4, 32, symmetric=False),
    compressed("pack-quantized", 8, -1),
    compressed("int-quantized", 8, -1),
    compressed("int-quantized", 8, -1, strategy="tensor"),
    compressed("naive-quantized", 8, 128, symmetric=False),
    fp8("tensor"),
    fp8("channel"),
    fp8("block"),
)  # fmt: skip
