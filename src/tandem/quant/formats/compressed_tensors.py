"""compressed-tensors, as llm-compressor writes it: integers of 4 or 8 bits, or FP8.

`pack-quantized`: `weight_packed` int32 [outputs, inputs / per word] of q + 2^(bits - 1), and, with
zero points, `weight_zero_point` int32 [outputs / per word, groups], likewise. `int-quantized` and
`naive-quantized`: `weight` int8 [outputs, inputs], `weight_zero_point` int8 [outputs, groups].
`weight_scale` [outputs, groups]: of a tensor [1], of rows one group.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tandem.quant.formats.config_fields import (
    flag,
    group_size,
    names,
    section,
    text,
    whole_number,
)
from tandem.quant.formats.fp8 import FP8Weight, block_of, fp8_weight
from tandem.quant.formats.grouping import WHOLE_ROW, are_in_order, format_of, regrouped
from tandem.quant.formats.integers import unpack_words
from tandem.quant.formats.stored_weight import FLOATS, Shape, StoredPart
from tandem.quant.whole_numbers import WholeNumbers
from tandem.spec.errors import ModelError
from tandem.spec.weight_format import BITS, WeightFormat

_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "float-quantized")
_INTEGERS = frozenset({"I8", "I32"})
_IN_WEIGHTS = (
    "weight_input",
    "weight_output",
)  # places of transforms that the weights have in them


@dataclass(frozen=True, slots=True)
class IntegerWeight:
    """One map in whole numbers.

    Attributes:
        group: -1: a whole row.
        per_tensor: one scale for all.
        packed: in 32-bit words.
        has_zeros: zero points are not all 0.
        act_order: groups may be of any inputs: they are looked at.
    """

    bits: int
    group: int
    per_tensor: bool
    packed: bool
    has_zeros: bool
    act_order: bool

    def format(self, inputs: int) -> WeightFormat:
        """Of the same bits."""
        return format_of(self.bits, self.group, inputs)

    def parts(self, outputs: int, inputs: int) -> Mapping[str, StoredPart]:
        """See the file's head."""
        groups = 1 if self.group == WHOLE_ROW else inputs // self.group
        scales: tuple[Shape, ...] = ((outputs, groups),)
        if self.group == WHOLE_ROW:
            scales = ((), (1,), (1, 1)) if self.per_tensor else ((outputs, 1), (outputs,))
        per_word = 32 // self.bits
        words = (-(-outputs // per_word), groups)
        zeros = (*scales, words) if self.packed else scales
        weight = {"weight": StoredPart(((outputs, inputs),), frozenset({"I8"}))}
        if self.packed:
            shape = (outputs, -(-inputs // per_word))
            weight = {
                "weight_packed": StoredPart((shape,), frozenset({"I32"})),
                "weight_shape": StoredPart(((2,),), frozenset({"I32", "I64"})),
            }
        return {
            **weight,
            "weight_scale": StoredPart(scales, FLOATS),
            "weight_zero_point": StoredPart(zeros, _INTEGERS, optional=not self.has_zeros),
            "weight_g_idx": StoredPart(((inputs,),), _INTEGERS, optional=not self.act_order),
        }

    def read(self, outputs: int, inputs: int, parts: Mapping[str, Tensor]) -> WholeNumbers:
        """Raises ValueError for act-order, and for numbers that cannot be held exactly."""
        order = parts.get("weight_g_idx")  # -1: as they come
        if order is not None and not (order == -1).all() and not are_in_order(order, self.group):
            raise ValueError(
                "its inputs are quantized in the order of their activations (act-order), which "
                "is not supported; use a checkpoint made without actorder"
            )
        offset = 1 << (self.bits - 1)
        if self.packed:
            if parts["weight_shape"].tolist() != [outputs, inputs]:
                raise ValueError(
                    f"its weight_shape says {parts['weight_shape'].tolist()}, which is not the "
                    "model's; config.json and weights do not belong together: download both again"
                )
            q = unpack_words(parts["weight_packed"], self.bits)[:, :inputs]
        else:
            q = parts["weight"].to(torch.int16) + offset
        scales = parts["weight_scale"]
        scales = scales.view(-1, 1) if scales.dim() < 2 else scales
        return regrouped(self.bits, q, scales, self._zeros(outputs, scales, parts, offset))

    def _zeros(
        self, outputs: int, scales: Tensor, parts: Mapping[str, Tensor], offset: int
    ) -> Tensor:
        """As unsigned numbers, in the scales' shape."""
        stored = parts.get("weight_zero_point")
        if stored is None:
            return torch.full(scales.shape, offset, dtype=torch.int16)
        if stored.dtype == torch.int8:
            return stored.to(torch.int16).view(scales.shape) + offset
        return unpack_words(stored.t(), self.bits).t()[:outputs]


@dataclass(frozen=True, slots=True)
class _Group:
    """Maps that are quantized alike."""

    targets: tuple[str, ...]
    format: str
    weights: Mapping[str, Any]

    @property
    def is_float(self) -> bool:
        return self.format == "float-quantized" or text(self.weights, "type", "int") == "float"

    def nearness(self, module: str) -> int:
        """How it names the map: 3 by name, 2 by an expression, 1 as a linear map, 0 not at all."""
        return max((_nearness(target, module) for target in self.targets), default=0)


@dataclass(frozen=True, slots=True)
class CompressedTensors:
    """One `quantization_config`."""

    groups: tuple[_Group, ...]

    @staticmethod
    def of(config: Mapping[str, Any]) -> "CompressedTensors":
        """Raises ModelError for what is not supported."""
        sparsity = text(section(config, "sparsity_config"), "format", "dense")
        if sparsity != "dense":
            raise ModelError(
                f"sparse weights ('{sparsity}') are not supported; use a checkpoint without a "
                "sparsity_config"
            )
        _refuse_transforms(section(config, "transform_config"))
        common = text(config, "format", "dense")
        groups = tuple(
            _read_group(name, section(section(config, "config_groups"), name), common)
            for name in section(config, "config_groups")
        )
        if not groups:
            raise ModelError(
                "'config_groups' of the quantization names nothing that is quantized; download "
                "config.json again"
            )
        return CompressedTensors(groups)

    @property
    def label(self) -> str:
        """Format and precision."""
        kinds = {f"{g.weights.get('type', 'int')}{g.weights.get('num_bits')}" for g in self.groups}
        return f"compressed-tensors of {', '.join(sorted(kinds))}"

    @property
    def is_fp8(self) -> bool:
        """Every group is."""
        return all(group.is_float for group in self.groups)

    def weight(self, module: str, types: Mapping[str, str]) -> IntegerWeight | FP8Weight | None:
        """By the group that names it most closely, as in the library, if it has a scale."""
        packed = "weight_packed" in types
        if not packed and not ("weight_scale" in types and "weight" in types):
            return None
        group = max(self.groups, key=lambda group: group.nearness(module))
        if not group.nearness(module):
            raise ModelError(
                f"'{module}' is quantized, but no group in config_groups has it as a target; "
                "config.json and weights do not belong together"
            )
        if group.is_float:
            return _float_weight(group, module, types)
        return _integer_weight(group, packed)


def _read_group(name: str, group: Mapping[str, Any], common: str) -> _Group:
    weights = section(group, "weights")
    layout = text(group, "format", common)
    if layout not in _FORMATS:
        raise ModelError(
            f"compressed-tensors in the format '{layout}' is not supported; supported are: "
            f"{', '.join(_FORMATS)}"
        )
    if not weights:
        raise ModelError(f"'{name}' of config_groups quantizes no weights; use another checkpoint")
    bits = whole_number(weights, "num_bits")
    if text(weights, "type", "int") == "float" and bits != 8:
        raise ModelError(f"floating point of {bits} bits is not supported; use one of 8, or int4")
    if bits not in BITS:
        raise ModelError(f"weights of {bits} bits are not supported; use a checkpoint of 4 or 8")
    return _Group(names(group, "targets"), layout, weights)


def _float_weight(group: _Group, module: str, types: Mapping[str, str]) -> FP8Weight | None:
    block = group.weights.get("block_structure")
    return fp8_weight(module, types, None if block is None else block_of(block))


def _integer_weight(group: _Group, packed: bool) -> IntegerWeight:
    weights = group.weights
    strategy = text(weights, "strategy") or _implied_strategy(weights)
    if strategy not in ("group", "channel", "tensor"):
        raise ModelError(
            f"weights quantized by '{strategy}' are not supported; use a checkpoint quantized by "
            "group, channel or tensor"
        )
    return IntegerWeight(
        bits=whole_number(weights, "num_bits"),
        group=group_size(weights, "group_size") if strategy == "group" else WHOLE_ROW,
        per_tensor=strategy == "tensor",
        packed=packed,
        has_zeros=not flag(weights, "symmetric", True),
        act_order=text(weights, "actorder") in ("group", "true"),
    )


def _implied_strategy(weights: Mapping[str, Any]) -> str:
    """What a group's size says where no strategy is given."""
    if weights.get("group_size") is None:
        return "tensor"
    return "channel" if group_size(weights, "group_size") == WHOLE_ROW else "group"


def _refuse_transforms(transforms: Mapping[str, Any]) -> None:
    """Rotations of activations, without which the weights mean something else.

    Raises:
        ModelError: there are some.
    """
    schemes = section(transforms, "config_groups")
    for name in schemes:
        places = section(schemes, name).get("apply") or []
        if not isinstance(places, list):
            raise ModelError(
                f"'apply' of the transform '{name}' is no list; download config.json again"
            )
        for place in places:
            location = text(place, "location") if isinstance(place, Mapping) else repr(place)
            if location not in _IN_WEIGHTS:
                raise ModelError(
                    f"the transform '{name}' is applied to activations ('{location}'), which is "
                    "not supported; use a checkpoint without a transform_config"
                )


def _nearness(target: str, module: str) -> int:
    if target == "Linear":
        return 1
    if not _matches(target, module):
        return 0
    return 2 if target.startswith("re:") else 3


def _matches(target: str, module: str) -> bool:
    if not target.startswith("re:"):
        return target == module
    try:
        return re.match(target[3:], module) is not None
    except re.error as error:
        raise ModelError(
            f"the target '{target}' is no regular expression ({error}); mend it in config.json"
        ) from error
