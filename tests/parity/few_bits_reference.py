"""transformers with keys and values in few bits, but for a prefix that is made anew."""

from collections.abc import Sequence
from typing import Any

import torch
from tests.parity.greedy import Reference
from tests.parity.quantized_reference import rounded
from transformers import DynamicCache, PreTrainedModel

from tandem.spec.kv_type import KVType


class _PagesCache(DynamicCache):
    """Gives back what pages would hold: all of a prompt while it is computed; after it, all but the
    prefix that is made anew, exactly.
    """

    def __init__(self, held: KVType, made: int) -> None:
        super().__init__()
        self._held, self._exact = held, made

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **more: Any
    ) -> tuple[Any, Any]:
        found = super().update(key_states, value_states, layer_idx, *args, **more)
        prompt = key_states.shape[-2] == found[0].shape[-2]
        first = 0 if prompt else self._exact
        key, value = (self._rounded(each, first) for each in found)
        return key, value

    def _rounded(self, values: torch.Tensor, first: int) -> torch.Tensor:
        rest = rounded(values[..., first:, :].contiguous(), self._held)
        return torch.cat((values[..., :first, :], rest), -2)


class FewBitsReference(Reference):
    """Greedy tokens after one prompt.

    Args:
        made: leading tokens of the prompt whose keys and values are made anew.
    """

    def __init__(
        self, model: PreTrainedModel, held: KVType, prompt: tuple[int, ...], made: int
    ) -> None:
        super().__init__(model)
        self._held, self._prompt, self._made = held, prompt, made

    def continuation(self, prompt: tuple[int, ...], count: int) -> list[int]:
        """The next `count` tokens."""
        cache, made = self._cache(prompt), list[int]()
        logits = self._read(cache, prompt)
        while len(made) < count:
            made.append(int(logits.argmax()))
            if len(made) < count:
                logits = self._read(cache, made[-1:])
        return made

    def _pass(self, prompt: tuple[int, ...], taken: tuple[int, ...]) -> torch.Tensor:
        """Token by token, as what the cache gives back changes behind the prompt."""
        cache = self._cache(prompt)
        parts = [prompt, *((token,) for token in taken[:-1])]
        return torch.stack([self._read(cache, part) for part in parts])

    def _cache(self, prompt: tuple[int, ...]) -> _PagesCache:
        assert prompt == self._prompt
        return _PagesCache(self._held, self._made)

    def _read(self, cache: _PagesCache, tokens: Sequence[int]) -> torch.Tensor:
        """Logits after the last one: [vocab] float32."""
        with torch.no_grad():
            ids = torch.tensor([list(tokens)])
            return self.model(ids, past_key_values=cache).logits[0, -1].float()
