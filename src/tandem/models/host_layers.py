"""Layers, and MLPs, that the CPU computes beside an accelerator, over weights in host memory."""

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from tandem.models.expert_hits import ExpertHits
from tandem.models.in_slots import in_slots
from tandem.models.layer_state import LayerState
from tandem.models.torch_layers import TorchLayers
from tandem.models.weight_layout import Modules
from tandem.models.weights import Weights
from tandem.spec.model import ModelSpec

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool

_CPU = torch.device("cpu")


class HostLayers(Protocol):
    """The default stages of some layers on the CPU, and the MLPs of others.

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

    def mlp(self, layer: int, state: LayerState) -> None:
        """From the norm before the MLP to the end of the layer; likewise. Where the state holds a
        choice of experts, those among the weights are computed, and nothing is counted.
        """
        ...

    def columns(self, layer: int, state: LayerState) -> None:
        """Of a divided MLP, what its first columns add to the branch, in the residual's place."""
        ...

    def output(self, layer: int, state: LayerState) -> None:
        """From attention to before the norm of the MLP; the residual is updated in place."""
        ...

    def add_branch(self, layer: int, branch: torch.Tensor, state: LayerState) -> None:
        """End a layer from there with its MLP's result [T, hidden]."""
        ...


def host_layers(
    spec: ModelSpec,
    weights: Weights,
    layers: tuple[int, ...],
    dtype: torch.dtype,
    pool: "NativePool | None",
    mlps: tuple[int, ...] = (),
    *,
    int8_activations: bool = False,
) -> HostLayers | None:
    """What computes `layers`, the MLPs that stay in host memory, and columns of divided ones; None
    if there are none.

    Args:
        weights: filled; those of `layers` are in host memory, or come there from disk.
        dtype: of activations, where torch does it: without a pool.
        mlps: others, of layers whose MLPs may be streamed.
    """
    whole = {} if weights.stream is None else weights.stream.stored
    read = None if weights.stream is None else weights.stream.computed_from_disk()
    moving = None if read is None else read.each(lambda layer, modules: _on_cpu(modules))
    stored = {layer: _on_cpu(whole[layer]) for layer in layers if layer in whole}
    in_host = {} if weights.mlps is None else weights.mlps.stored
    in_host = in_host | {layer: whole[layer] for layer in mlps if layer not in in_host}
    apart = {layer: _on_cpu(modules) for layer, modules in in_host.items()}
    divided = {} if weights.stream is None else weights.stream.columns()
    columns = {layer: _on_cpu(modules) for layer, modules in divided.items()}
    if not (stored or apart or columns) and moving is None:
        return None
    if pool is None:
        return TorchLayers(spec, in_slots(stored | apart | columns, moving), _CPU, dtype)
    from tandem.models.native_stages import NativeLayers

    return NativeLayers(
        spec, stored, pool, apart, moving, columns=columns, int8_activations=int8_activations
    )


def _on_cpu(modules: Modules) -> Modules:
    """The same memory where it is the host's; norms and biases may be elsewhere."""
    return {
        name: replace(a, weight=a.weight.cpu(), bias=None if a.bias is None else a.bias.cpu())
        for name, a in modules.items()
    }
