"""The CPU's part of a divided layer on the compiled kernels, activations in float32.

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
        modules: the norm before the MLP, the columns, and attention's maps if they are the CPU's.
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
        self._output = native_linear(modules["output"]) if "output" in modules else None
        self._post_attention = self._post_mlp = None
        if spec.post_norms and self._output is not None:
            self._post_attention = native_norm(spec, modules["post_attention_norm"])
            self._post_mlp = native_norm(spec, modules["post_mlp_norm"])

    def sum(self, residual: Tensor) -> Tensor:
        """What they add to the branch of `residual` float32 [T, hidden], which stays: alike."""
        normed = torch.empty_like(residual)
        _native.normalize(self._pool.handle, self._norm, residual, normed)
        mlp = torch.empty(len(residual), self._down.inputs)
        linear_into(mlp, self._pool, self._up, normed, self._end, self._activation)
        return linear(self._pool, self._down, mlp)

    def output(self, attention: Tensor, residual: Tensor) -> None:
        """Add attention's result float32 [T, heads * head_dim], mapped, to `residual`."""
        assert self._output is not None
        branch = linear(self._pool, self._output, attention)
        residual.add_(self._normed(self._post_attention, branch))

    def add_branch(self, branch: Tensor, residual: Tensor) -> None:
        """Add the MLP's result float32 [T, hidden] to `residual`."""
        residual.add_(self._normed(self._post_mlp, branch))

    def _normed(self, norm: _native.Norm | None, branch: Tensor) -> Tensor:
        if norm is None:
            return branch
        normed = torch.empty_like(branch)
        _native.normalize(self._pool.handle, norm, branch, normed)
        return normed
