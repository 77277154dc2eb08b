"""MLPs in host memory, of layers whose other weights are where the maths is done."""

from collections.abc import Mapping

import torch

from tandem.models.weight_layout import LayerLayout, Modules

_CPU = torch.device("cpu")


class HostMlps:
    """MLPs, mixtures of experts, or some of a mixture's, that the CPU computes where they lie.

    Their norms and biases are small, and resident, as those of all layers are.

    Args:
        layouts: by layer, of those weights.
        device: of norms and biases.

    Attributes:
        stored: by layer, those weights.
    """

    def __init__(self, layouts: Mapping[int, LayerLayout], device: torch.device) -> None:
        self._sources = {layer: layout.allocate(_CPU) for layer, layout in layouts.items()}
        self.stored: dict[int, Modules] = {
            layer: layout.modules(self._sources[layer], layout.allocate_vectors(device))
            for layer, layout in layouts.items()
        }

    @property
    def host_bytes(self) -> int:
        """Memory of the matrices."""
        return sum(source.nbytes for source in self._sources.values())
