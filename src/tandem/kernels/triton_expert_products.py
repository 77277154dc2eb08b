"""A mixture's experts on a GPU, all in a few launches, without the host knowing what was chosen.

Import this module only if `triton_support.available()`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from tandem.cost.quantized import MOST_EXPERT_ROWS_WITHOUT_DOT
from tandem.kernels.triton_experts import (
    ALIGNED_BYTES,
    ELSEWHERE,
    multiply_expert_codes,
    multiply_expert_floats,
)
from tandem.kernels.triton_plan import MIN_DOT
from tandem.kernels.triton_support import TritonDevice
from tandem.memory.workspace import EXPERT_SCRATCH_BYTES
from tandem.quant.quantized_weight import QuantizedWeight

STAGES = 3  # of weights on their way into registers
_MOST_ROWS = {2: 64, 4: MIN_DOT}  # of a tile, by bytes of an element: what registers hold
_MOST_ROWS_WITHOUT_DOT = 4
_STEP_BYTES = 256  # of inputs of a row at a time
_STEP_BYTES_WITHOUT_DOT = 128

Weight = Tensor | QuantizedWeight


@dataclass(frozen=True, slots=True)
class ExpertTile:
    """The constants that the kernels are compiled with."""

    rows: int
    outputs: int
    depth: int


def expert_tile(places: int, experts: int, element_bytes: int, unit: TritonDevice) -> ExpertTile:
    """One of two sizes, by how many places an expert has on average.

    Args:
        element_bytes: of the type that is multiplied in.
    """
    few, most = MIN_DOT, _MOST_ROWS[element_bytes]
    if not unit.has_dot:
        few, most = 1, _MOST_ROWS_WITHOUT_DOT
    rows = most if places > few * experts else few
    if unit.has_dot:
        return ExpertTile(rows, 64 if rows > MIN_DOT else 32, _STEP_BYTES // element_bytes)
    return ExpertTile(rows, 32 // rows, _STEP_BYTES_WITHOUT_DOT // element_bytes)


def pays_together(places: int, experts: int, unit: TritonDevice) -> bool:
    """Whether so many are best multiplied here; else each expert's by torch."""
    return unit.has_dot or places <= MOST_EXPERT_ROWS_WITHOUT_DOT * experts


@dataclass(frozen=True, slots=True)
class ExpertMap:
    """The same linear map of all experts of a layer, wherever each of them lies.

    Attributes:
        first: the weight of some expert, from which offsets count.
        offsets: int64 [tensors of a weight, experts]; of an expert elsewhere `ELSEWHERE`.
        unit_bytes: of the first row of offsets; the other rows count elements.
    """

    first: Weight
    offsets: Tensor
    unit_bytes: int

    @staticmethod
    def of(weights: Sequence[Weight | None]) -> "ExpertMap | None":
        """Of every expert's weight [outputs, inputs], on one device; None: they are not alike, or
        none is here.

        Args:
            weights: None for an expert elsewhere.
        """
        here = [weight for weight in weights if weight is not None]
        if len({_kind(weight) for weight in here}) != 1:
            return None
        first = here[0]
        base = [tensor.data_ptr() for tensor in _tensors(first)]
        sizes = [tensor.element_size() for tensor in _tensors(first)]
        aligned = all((_tensors(w)[0].data_ptr() - base[0]) % ALIGNED_BYTES == 0 for w in here)
        units = [ALIGNED_BYTES if aligned else sizes[0], *sizes[1:]]
        rows = [_offsets(weight, base, units) for weight in weights]
        device = _tensors(first)[0].device
        offsets = torch.tensor(rows, dtype=torch.int64, device=device).t().contiguous()
        return ExpertMap(first, offsets, units[0])

    @property
    def count(self) -> int:
        """Experts."""
        return self.offsets.shape[1]

    @property
    def outputs(self) -> int:
        """Rows of each weight."""
        return _tensors(self.first)[0].shape[0]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which experts tokens go to, in the order of experts.

    Attributes:
        order: int64 [places]; of those of the tokens in turn.
        starts: int64 [experts + 1]; where in `order` each expert's begin.
    """

    order: Tensor
    starts: Tensor

    @staticmethod
    def of(experts: Tensor, count: int) -> "Chosen":
        """Of int64 [T, k], on the device alone."""
        ordered, order = experts.flatten().sort(stable=True)
        bounds = torch.arange(count + 1, device=experts.device)
        return Chosen(order, torch.searchsorted(ordered, bounds))


def expert_total(
    x: Tensor,  # [T, hidden]
    experts: Tensor,  # int64 [T, k]
    shares: Tensor,  # float32 [T, k]
    gate_up: ExpertMap,
    down: ExpertMap,
    gated: Callable[[Tensor, Tensor], Tensor],
    unit: TritonDevice,
) -> Tensor:
    """What experts here add to the residual: float32 [T, hidden].

    As many tokens at a time as take `EXPERT_SCRATCH_BYTES`.

    Args:
        gated: the activation of gates, times ups: [places, inner] each; gives new memory.
    """
    tokens, per_token = experts.shape
    total = torch.empty((tokens, down.outputs), dtype=torch.float32, device=x.device)
    size = per_token * (2 * gate_up.outputs * x.element_size() + 4 * down.outputs)
    piece = max(1, EXPERT_SCRATCH_BYTES // size)
    for begin in range(0, tokens, piece):
        part = slice(begin, min(tokens, begin + piece))
        chosen = Chosen.of(experts[part], gate_up.count)
        both = multiply_experts(x[part], gate_up, chosen, None, unit)
        gate, up = both.chunk(2, dim=-1)
        added = multiply_experts(gated(gate, up), down, chosen, shares[part].contiguous(), unit)
        torch.sum(added.view(-1, per_token, down.outputs), dim=1, out=total[part])
    return total


def multiply_experts(
    x: Tensor,  # [rows, inputs]
    weights: ExpertMap,
    chosen: Chosen,
    shares: Tensor | None,  # float32, one for each place
    unit: TritonDevice,
) -> Tensor:
    """Each place's row by its expert: [places, outputs], 0 of experts elsewhere.

    In the type of `x`; times the place's share, if there are shares, in float32. Sums are float32.
    Places in turn have a row of `x` in common, as many as there are more places than rows.
    """
    x, places = x.contiguous(), len(chosen.order)
    dtype = x.dtype if shares is None else torch.float32
    y = torch.empty((places, weights.outputs), dtype=dtype, device=x.device)
    if places == 0:
        return y
    tile = expert_tile(places, weights.count, x.element_size(), unit)
    grid = (weights.count, -(-weights.outputs // tile.outputs))
    of_tokens = (weights.offsets, chosen.order, chosen.starts, y if shares is None else shares, y)
    constants = {
        "PER_ROW": places // x.shape[0],
        "ROWS": tile.rows,
        "OUTPUTS": tile.outputs,
        "HAS_SHARES": shares is not None,
        "USE_DOT": unit.has_dot,
        "num_stages": STAGES,
    }
    first = weights.first
    if isinstance(first, QuantizedWeight):
        cast("Any", multiply_expert_codes)[grid](
            x,
            first.q,
            first.scales,
            first.zeros,
            *of_tokens,
            weights.outputs,
            first.inputs // first.format.group,
            UNIT=weights.unit_bytes,
            GROUP=first.format.group,
            CODE_BITS=first.format.bits,
            STEP_GROUPS=max(1, tile.depth // first.format.group),
            **constants,
        )
        return y
    cast("Any", multiply_expert_floats)[grid](
        x,
        first,
        *of_tokens,
        weights.outputs,
        first.shape[1],
        UNIT=weights.unit_bytes // first.element_size(),
        DEPTH=tile.depth,
        **constants,
    )
    return y


def _kind(weight: Weight) -> object:
    if isinstance(weight, QuantizedWeight):
        return weight.format, weight.outputs, weight.inputs
    return weight.dtype, weight.shape, weight.is_contiguous()


def _offsets(weight: Weight | None, base: list[int], units: list[int]) -> list[int]:
    if weight is None:
        return [ELSEWHERE] * len(base)
    places = zip(_tensors(weight), base, units, strict=True)
    return [(tensor.data_ptr() - begin) // unit for tensor, begin, unit in places]


def _tensors(weight: Weight) -> tuple[Tensor, ...]:
    if isinstance(weight, QuantizedWeight):
        return weight.q, weight.scales, weight.zeros
    return (weight,)
