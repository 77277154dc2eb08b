"""From the groups that a checkpoint has to those that the kernels take."""

import torch
from torch import Tensor

from tandem.quant.whole_numbers import WholeNumbers
from tandem.spec.errors import ModelError
from tandem.spec.weight_format import GROUPS, WeightFormat

WHOLE_ROW = -1


def format_of(bits: int, group: int, inputs: int) -> WeightFormat:
    """The largest groups that lie within groups of `group` (-1: a row) elements.

    Raises:
        ModelError: there are none.
    """
    size = inputs if group == WHOLE_ROW else group
    fitting = [g for g in GROUPS if size % g == 0 and inputs % size == 0]
    if not fitting:
        raise ModelError(
            f"rows of {inputs} elements quantized in groups of {size} are not supported: groups "
            f"must be of a multiple of {GROUPS[0]} elements and divide the row; "
            "use a checkpoint of another group size"
        )
    return WeightFormat(bits, max(fitting))


def regrouped(
    bits: int,
    q: Tensor,  # uint8 [outputs, inputs]
    scales: Tensor,  # [outputs or 1, groups]
    zeros: Tensor,  # integers [outputs or 1, groups]
) -> WholeNumbers:
    """The same numbers with each group cut into some that the kernels take.

    Raises:
        ValueError: scales that are not finite, or numbers beyond the bits.
    """
    outputs, inputs = q.shape
    format = format_of(bits, inputs // scales.shape[1], inputs)
    shape = format.group_shape(outputs, inputs)
    return WholeNumbers(format, q, _spread(scales, shape), _spread(zeros, shape))


def _spread(values: Tensor, shape: tuple[int, int]) -> Tensor:
    repeated = torch.repeat_interleave(values, shape[1] // values.shape[1], dim=1)
    return repeated.expand(shape)


def are_in_order(
    indices: Tensor,  # integers [inputs]: the group of each element of a row
    group: int,
) -> bool:
    """Whether groups are runs of neighbours, so without act-order."""
    size = len(indices) if group == WHOLE_ROW else group
    return torch.equal(indices.long(), torch.arange(len(indices)) // size)
