"""Time of stages whose linear maps may be kept in few bits.

The compiled kernels on the CPU read such a map as it lies and dequantize in registers. So do Triton
kernels on a GPU, up to a number of rows; of more, a kernel of its own dequantizes some outputs at a
time, which are then multiplied (`kernels/triton_products.py`, `models/linear.py`, ADR 0029).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, cost_of
from tandem.cost.varying_rows import VaryingRows
from tandem.spec.dtype import DType
from tandem.spec.hardware import AcceleratorFacts
from tandem.spec.model import ExpertSpec
from tandem.spec.operations import Operation, WeightShape
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

MATRIX_UNITS_FROM = 8.0
"""The first compute capability whose matrix units the kernels use."""
_MOST_ROWS = {2: 128, 4: 16}  # by bytes of an element
_MOST_ROWS_WITHOUT_DOT = 4
MOST_EXPERT_ROWS_WITHOUT_DOT = 64
"""Of an expert on average: its weights are read for each tile of them."""
_ELEMENTS_AT_ONCE = 1 << 22  # dequantized
_KERNELS_OF_A_PART = 3  # it is dequantized, multiplied, and its result put in place
# Maps of few outputs are divided along their inputs, too; two kernels add up and round, but not on
# matrix units in 16 bits, where the last part's own kernel does.
_SPLIT_KERNELS, _TILE_OUTPUTS, _LEAST_INPUTS = 2, 32, 1024
_TILES_ENOUGH = 256  # two for each multiprocessor of a usual card


def most_rows_by_codes(element_bytes: int, *, has_dot: bool) -> int:
    """Rows that a GPU multiplies by codes; more by weights that are dequantized before, which costs
    the less for each row.

    Args:
        element_bytes: of the type that is multiplied in. has_dot: matrix units are used.
    """
    return _MOST_ROWS[element_bytes] if has_dot else _MOST_ROWS_WITHOUT_DOT


@dataclass(frozen=True, slots=True)
class CodeKernels:
    """How a device multiplies by weights in few bits.

    Attributes:
        most_rows: by codes, in registers; None: any number.
        most_expert_rows: likewise, of an expert in the mean, since all are multiplied at once.
        splits: maps of few outputs take kernels more, which add up their parts.
    """

    most_rows: int | None = None
    most_expert_rows: int | None = None
    splits: bool = False

    def by_codes(self, rows: float) -> bool:
        """Whether so many rows are."""
        return self.most_rows is None or rows <= self.most_rows

    def experts_by_codes(self, rows: float) -> bool:
        """Whether experts with so many rows each are."""
        return self.most_expert_rows is None or rows <= self.most_expert_rows


COMPILED = CodeKernels()
"""On the CPU."""


def gpu_kernels(facts: AcceleratorFacts, dtype: DType) -> CodeKernels:
    """Triton's on a GPU that multiplies in `dtype`; one whose compute capability is not known is
    taken for a recent one.
    """
    capability = facts.compute_capability
    has_dot = capability is None or capability >= MATRIX_UNITS_FROM
    most = most_rows_by_codes(dtype.size_bytes, has_dot=has_dot)
    return CodeKernels(
        most,
        None if has_dot else MOST_EXPERT_ROWS_WITHOUT_DOT,
        splits=not has_dot or dtype.size_bytes > 2,
    )


class _Read(NamedTuple):
    """What tensors cost beside arithmetic and activations.

    Attributes:
        size_bytes: read by products. apart_bytes: moved by kernels of their own. apart_per_row:
            likewise, of each row.
        kernels: beside their operations' own.
    """

    size_bytes: float = 0.0
    apart_bytes: float = 0.0
    apart_per_row: float = 0.0
    kernels: float = 0

    def plus(self, other: "_Read", times: float = 1) -> "_Read":
        """Both; `other` so often."""
        return _Read(*(one + times * more for one, more in zip(self, other, strict=True)))


class PreciseStage:
    """A stage's operations, summed up as far as that does not depend on the number of tokens.

    Raises:
        ValueError: an operation of attention.
    """

    def __init__(
        self, operations: Iterable[Operation], precision: Precision, kernels: CodeKernels
    ) -> None:
        self._flops_per_token = self._routed_flops_per_token = 0
        self._moved_per_token = self._num_operations = 0
        self._kernels = kernels
        self._few = self._many = _Read()
        # of experts, few tokens read few
        self._routed: list[tuple[Operation, _Read, _Read]] = []
        for op in operations:
            if op.is_attention:
                raise ValueError(f"{op.name} depends on the context; use attention_cost")
            few, many = _Read(), _Read()
            for (shape, format), count in _alike(op.weights, precision).items():
                by_codes, dequantized = _reads(shape, format, precision, kernels)
                few, many = few.plus(by_codes, count), many.plus(dequantized, count)
            self._moved_per_token += op.activation_elements(1) * precision.activations.size_bytes
            self._num_operations += 1
            if op.experts is None:
                self._flops_per_token += op.flops_per_token
                self._few, self._many = self._few.plus(few), self._many.plus(many)
            else:
                self._routed_flops_per_token += op.flops_per_token
                self._routed.append((op, few._replace(kernels=0), many))
        self._has_codes: bool = self._few != self._many

    def read_bytes(self, tokens: int) -> float:
        """Of weights, by products of so many tokens, where all are read as they lie."""
        routed = (op.read_weight_share(tokens) * few.size_bytes for op, few, _ in self._routed)
        return self._few.size_bytes + sum(routed)

    def cost(
        self, tokens: int, rates: DeviceRates, varying: VaryingRows | None = None
    ) -> CostBreakdown:
        """As `stage_cost`, with each weight in its own type.

        Args:
            varying: what rows sweeps have of which `tokens` is a mean; no fewer are computed than
                if all had so many.
        """
        by_codes = self._has_codes and self._kernels.by_codes(tokens)
        read = self._few if by_codes else self._many
        apart_bytes = read.apart_bytes + tokens * read.apart_per_row
        for op, few, many in self._routed:
            assert op.experts is not None
            share = op.read_weight_share(tokens)
            rows = tokens * op.experts.per_token / (share * op.experts.count) if share else 0.0
            each = few if self._kernels.experts_by_codes(rows) else many
            read = read.plus(each, share)
            apart_bytes += share * (each.apart_bytes + rows * each.apart_per_row)
        size = tokens * self._moved_per_token + read.size_bytes
        kernels = round(self._num_operations + read.kernels)
        # experts' tiles are of fewer rows, each another number
        computed: float = tokens
        if (tile := rates.tile(by_codes=by_codes)) > 1:
            computed = rates.whole_tiles(tokens, by_codes=by_codes)
            if varying is not None:
                computed = max(computed, varying.whole_tiles(tile))
        flops = computed * self._flops_per_token + tokens * self._routed_flops_per_token
        found = cost_of(flops, size, kernels, rates)
        if not apart_bytes:
            return found
        return found.after(apart_bytes / (rates.bytes_per_s * rates.dequantize_share))

    def changes(self, most: int) -> tuple[int, ...]:
        """Numbers of tokens, fewer than `most`, beyond which other kernels multiply: then what is
        read, and moved beside, leaps up.
        """
        found = set[int]()
        few = self._kernels.most_rows
        if self._has_codes and few is not None:
            found.add(few)
        for op, by_codes, dequantized in self._routed:
            if by_codes.size_bytes != dequantized.size_bytes:
                assert op.experts is not None
                fits = partial(self._experts_by_codes, op.experts)
                first = bisect_left(range(most + 1), True, key=lambda n, fits=fits: not fits(n))
                found.add(first - 1)
        return tuple(sorted(n for n in found if 0 < n < most))

    @property
    def is_convex(self) -> bool:
        """Whether unlike numbers of tokens take no less than alike ones of the same mean."""
        return not self._routed and not self._has_codes

    def _experts_by_codes(self, experts: ExpertSpec, tokens: int) -> bool:
        share = experts.touched_share(tokens)
        rows = tokens * experts.per_token / (share * experts.count) if share else 0.0
        return self._kernels.experts_by_codes(rows)

    def token_flops(self) -> int:
        """Arithmetic of each token, less than which none takes however many there are."""
        return self._flops_per_token + self._routed_flops_per_token


def _alike(
    weights: Iterable[WeightShape], precision: Precision
) -> Counter[tuple[tuple[int, ...], WeightFormat | None]]:
    """How many there are of each shape and format: experts' weights are hundreds, all alike."""
    formats = precision.quantized
    return Counter(
        (weight.shape, formats.get(weight.name.removesuffix(".weight"))) for weight in weights
    )


def _reads(
    shape: tuple[int, ...], format: WeightFormat | None, precision: Precision, kernels: CodeKernels
) -> tuple[_Read, _Read]:
    """Of one tensor, by few rows and by many."""
    if format is None:
        plain = _Read(prod(shape) * precision.weights.size_bytes)
        return plain, plain
    outputs, inputs = shape
    added = _SPLIT_KERNELS if kernels.splits and _is_split(outputs, inputs) else 0
    few = _Read(format.size_bytes(outputs, inputs), kernels=added)
    if kernels.most_rows is None:
        return few, few
    return few, _dequantized(format, outputs, inputs, precision.activations.size_bytes)


def _is_split(outputs: int, inputs: int) -> bool:
    return outputs < _TILE_OUTPUTS * _TILES_ENOUGH and inputs >= _LEAST_INPUTS


def _dequantized(format: WeightFormat, outputs: int, inputs: int, size_bytes: int) -> _Read:
    """Codes are read and elements written, which the product then reads; its result is copied."""
    elements = outputs * inputs * size_bytes
    parts = -(-outputs // max(1, _ELEMENTS_AT_ONCE // inputs))
    return _Read(
        elements,
        format.size_bytes(outputs, inputs) + elements,
        2.0 * outputs * size_bytes,
        _KERNELS_OF_A_PART * parts - 1,
    )
