"""Which experts tokens go to in the paced emulator, whose routers are random."""

from collections.abc import Mapping

import numpy as np
import torch

from tandem.cost.expert_use import ExpertUse
from tandem.models.layer_state import LayerState
from tandem.models.weight_layout import Modules
from tandem.spec.model import ExpertSpec

_TOKENS = 1024  # of a layer, in turn


class PacedChoices:
    """Choices of random tokens, which fall to experts as often as they are used.

    Weights of one layer serve for all; of a mixture that is split only those of the last expert are
    missing. A layer's own experts take the first ones' places, so that as many are read as would
    be, and what goes to the accelerator goes to the missing one.

    Args:
        resident: by layer, experts on the accelerator where others are in host memory.
    """

    def __init__(
        self,
        spec: ExpertSpec,
        resident: Mapping[int, tuple[int, ...]],
        use: ExpertUse,
        seed: int,
    ) -> None:
        self._spec, self._resident, self._use, self._seed = spec, resident, use, seed
        self._drawn: dict[int, torch.Tensor] = {}
        self._next: dict[int, int] = {}

    def is_split(self, layer: int) -> bool:
        """Whether the accelerator has some of a layer's experts."""
        return layer in self._resident

    def without_last(self, modules: Modules) -> Modules:
        """A mixture's weights but the router's and the last expert's."""
        last = f"experts.{self._spec.count - 1}."
        return {n: a for n, a in modules.items() if n != "router" and not n.startswith(last)}

    def route(self, layer: int, state: LayerState) -> None:
        """Let the next tokens of a layer have chosen."""
        if layer not in self._drawn:
            self._drawn[layer] = self._places(layer)[self._draw(layer)]
        start, tokens = self._next.get(layer, 0), state.num_tokens
        self._next[layer] = (start + tokens) % _TOKENS
        state.experts = self._drawn[layer][(torch.arange(tokens) + start) % _TOKENS]
        state.expert_weights = torch.ones(state.experts.shape)

    def _draw(self, layer: int) -> torch.Tensor:
        """[tokens, per_token], by systematic sampling: every expert with its own probability
        (Madow 1949).
        """
        random = np.random.default_rng((self._seed, layer))
        shares = np.asarray(self._use.shares[layer])
        order = random.permutation(len(shares))
        ends = np.cumsum(shares[order] * (self._spec.per_token / shares.sum()))
        points = random.random((_TOKENS, 1)) + np.arange(self._spec.per_token)
        found = np.searchsorted(ends, points, side="right").clip(max=len(shares) - 1)
        return torch.from_numpy(order[found])

    def _places(self, layer: int) -> torch.Tensor:
        if not self.is_split(layer):
            return torch.arange(self._spec.count)
        places = torch.full((self._spec.count,), self._spec.count - 1)
        left = [i for i in range(self._spec.count) if i not in self._resident[layer]]
        places[left] = torch.arange(len(left))
        return places
