"""The CPU's columns of a divided MLP on the compiled kernels, activations in float32.

Import this module only if `native.available()`.
"""

import torch
from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.native_linear import LinearEnd, linear, linear_into
from tandem.kernels.native_pool import NativePool
from tandem.models.divided_layer import COLUMNS
from tandem.models.native_weights import ACTIVATIONS, native_linear, native_norm
from tandem.models.weight_layout import Modules
from tandem.spec.model import ModelSpec


class NativeColumns:
    """Of one layer; weights stay as they lie.

    Args:
        modules: the norm before the MLP, and the columns.
        pool: whose threads do the work.
    """

    def __init__(self, spec: ModelSpec, modules: Modules, pool: NativePool) -> None:
        self._pool = pool
        self._activation = ACTIVATIONS[spec.activation]
        self._end = LinearEnd.GATED if spec.gated else LinearEnd.ACTIVATE
        up, down = ("gate_up", "down") if spec.gated else ("fc0", "fc1")
        self._norm = native_norm(spec, modules["mlp_norm"])
        self._up = native_linear(modules[COLUMNS + up])
        self._down = native_linear(modules[COLUMNS + down])

    def sum(self, residual: Tensor) -> Tensor:
        """What they add to the branch of `residual` float32 [T, hidden], which stays: alike."""
        normed = torch.empty_like(residual)
        _native.normalize(self._pool.handle, self._norm, residual, normed)
        mlp = torch.empty(len(residual), self._down.inputs)
        linear_into(mlp, self._pool, self._up, normed, self._end, self._activation)
        return linear(self._pool, self._down, mlp)
