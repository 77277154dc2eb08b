"""Linear maps by the compiled kernels, over weights as they lie in memory.

Import this module only if `native.available()`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.native_pool import NativePool, Pending, SignalPoint
from tandem.quant.quantized_weight import QuantizedWeight

Activation = _native.Activation
LinearEnd = _native.LinearEnd


@dataclass(frozen=True, slots=True)
class NativeLinear:
    """A weight whose shape, type and memory were checked once; keeps its tensors alive.

    Attributes:
        handle: the compiled weight, for the modules of the kernels.
    """

    handle: _native.LinearWeight

    @staticmethod
    def of(
        weight: Tensor,  # [outputs, inputs]; contiguous; float32, float16 or bfloat16
        bias: Tensor | None = None,  # float32 [outputs]
    ) -> "NativeLinear":
        """A map by a weight as a checkpoint holds it; memory of a mapped file will do.

        Raises:
            ValueError: tensors of another type or shape, or not contiguous.
        """
        return NativeLinear(_native.LinearWeight(weight.detach(), _detached(bias)))

    @staticmethod
    def quantized(
        weight: QuantizedWeight,
        bias: Tensor | None = None,  # float32 [outputs]
    ) -> "NativeLinear":
        """A map by a quantized weight, which is dequantized on the way.

        Raises:
            ValueError: tensors that are not contiguous, or a bias of another type or shape; floats
                of a byte, which the compiled kernels do not read.
        """
        w = weight
        if w.format.floats:
            raise ValueError(f"the compiled kernels do not read weights in {w.format}")
        handle = _native.LinearWeight.quantized(
            w.q, w.format.bits, w.scales, w.zeros, _detached(bias)
        )
        return NativeLinear(handle)

    @property
    def outputs(self) -> int:
        """Rows of the weight."""
        return self.handle.outputs

    @property
    def inputs(self) -> int:
        """Elements of a row."""
        return self.handle.inputs


def linear(
    pool: NativePool,
    weight: NativeLinear,
    x: Tensor,  # float32 [rows, inputs]; each row contiguous
    activation: Activation = Activation.NONE,
    *,
    int8_activations: bool = False,
) -> Tensor:
    """`activation(x W^T + bias)`: float32 [rows, outputs], new memory.

    Raises:
        ValueError: an `x` of another type or shape, or without rows; see `linear_into`.
    """
    y = torch.empty(x.shape[0], weight.outputs)
    end = LinearEnd.STORE if activation == Activation.NONE else LinearEnd.ACTIVATE
    linear_into(y, pool, weight, x, end, activation, int8_activations=int8_activations)
    return y


def linear_into(
    y: Tensor,  # float32 [rows, outputs], half of them if gated; each row contiguous
    pool: NativePool,
    weight: NativeLinear,
    x: Tensor,  # float32 [rows, inputs]; each row contiguous; must not overlap y
    end: LinearEnd = LinearEnd.STORE,
    activation: Activation = Activation.NONE,
    *,
    int8_activations: bool = False,
) -> None:
    """A linear map into given memory now, the calling thread taking part.

    `ADD` adds to `y`. `GATED` takes the weight for a gate above an up projection and writes
    `activation(gate) * up`. `ACTIVATE` writes `activation(x W^T + bias)`.

    `int8_activations`, for weights of 8 bits only, rounds `x` to 127 steps either side of 0 in each
    of the weight's groups, and multiplies whole numbers: an element of `x` is off by at most a
    254th of its group's largest. Rows with a number that is not finite give NaN.

    Raises:
        ValueError: tensors of another type or shape, or without rows; an activation for an end that
            has none; an odd number of outputs where they are gated; weights of another type with
            `int8_activations`. Nothing was written.
    """
    _native.linear(
        pool.handle, weight.handle, x, y, end, activation, pool.isa, int8_activations
    ).run()


def submit_linear(
    y: Tensor,  # float32 [rows, outputs], half of them if gated; each row contiguous
    pool: NativePool,
    weight: NativeLinear,
    x: Tensor,  # float32 [rows, inputs]; each row contiguous; must not overlap y
    end: LinearEnd = LinearEnd.STORE,
    activation: Activation = Activation.NONE,
    *,
    int8_activations: bool = False,
    after: Sequence[SignalPoint] = (),
    then: SignalPoint | None = None,
) -> Pending[Tensor]:
    """Start `linear_into` once `after` is reached, and raise `then` at its end, without Python.

    Raises:
        ValueError: as `linear_into`; nothing was started.
    """
    task = _native.linear(
        pool.handle, weight.handle, x, y, end, activation, pool.isa, int8_activations
    )
    task.submit(after, then)
    return Pending(task, y)


def dequantize(pool: NativePool, weight: NativeLinear) -> Tensor:
    """The weight's values: float32 [outputs, inputs], new memory.

    No step needs it, since linear maps convert weights on the way. Probes do, to time how fast
    codes are read and unpacked where no product takes its share.
    """
    out = torch.empty(weight.outputs, weight.inputs)
    _native.dequantize(pool.handle, weight.handle, out, pool.isa).run()
    return out


def _detached(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.detach()
