"""Layers that the CPU computes beside an accelerator, over their weights in host memory."""

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from tandem.models.expert_hits import ExpertHits
from tandem.models.layer_state import LayerState
from tandem.models.torch_layers import TorchLayers
from tandem.models.weight_layout import Modules
from tandem.models.weights import Weights
from tandem.spec.model import ModelSpec

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool

_CPU = torch.device("cpu")


class HostLayers(Protocol):
    """The default stages of some layers on the CPU.

    Attributes:
        expert_hits: how often tokens went to each expert.
    """

    expert_hits: ExpertHits

    @property
    def dtype(self) -> torch.dtype:
        """Of activations."""
        ...

    @property
    def pool(self) -> "NativePool | None":
        """Threads of the compiled kernels; None: torch computes."""
        ...

    def pre(self, layer: int, state: LayerState) -> None:
        """From the residual to q, k and v, normed and rotated."""
        ...

    def post(self, layer: int, state: LayerState) -> None:
        """From attention to the end of the layer; the residual is updated in place."""
        ...


def host_layers(
    spec: ModelSpec,
    weights: Weights,
    layers: tuple[int, ...],
    dtype: torch.dtype,
    pool: "NativePool | None",
    *,
    int8_activations: bool = False,
) -> HostLayers | None:
    """What computes `layers`, whose weights are in host memory and filled; None if there are none.

    Args:
        dtype: of activations, where torch does it: without a pool.
    """
    if not layers:
        return None
    assert weights.stream is not None
    stored = {layer: _on_cpu(weights.stream.stored[layer]) for layer in layers}
    if pool is None:
        return TorchLayers(spec, stored, _CPU, dtype)
    from tandem.models.native_stages import NativeLayers

    return NativeLayers(spec, stored, pool, int8_activations=int8_activations)


def _on_cpu(modules: Modules) -> Modules:
    """The same memory where it is the host's; norms and biases may be elsewhere."""
    return {
        name: replace(a, weight=a.weight.cpu(), bias=None if a.bias is None else a.bias.cpu())
        for name, a in modules.items()
    }
