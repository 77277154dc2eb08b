"""transformers with keys and values in few bits, but for a prefix that is made anew."""

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
        """The next `count` tokens after the prompt and tokens that were taken before."""
        cache, made = self._cache_of(prompt), list[int]()
        logits = self._read(cache, prompt)
        while len(made) < count:
            made.append(int(logits.argmax()))
            if len(made) < count:
                logits = self._next(cache, made[-1])
        return made

    def logits(self, tokens: tuple[int, ...]) -> torch.Tensor:
        """Of the token after `tokens`: [vocab] float32."""
        return self._read(self._cache_of(tokens), tokens)

    def _cache_of(self, tokens: tuple[int, ...]) -> _PagesCache:
        assert tokens[: len(self._prompt)] == self._prompt
        return _PagesCache(self._held, self._made)

    def _read(self, cache: _PagesCache, tokens: tuple[int, ...]) -> torch.Tensor:
        """The prompt at once, then one token after the other; logits after the last one."""
        with torch.no_grad():
            ids = torch.tensor([self._prompt])
            logits = self.model(ids, past_key_values=cache).logits[0, -1].float()
        for token in tokens[len(self._prompt) :]:
            logits = self._next(cache, token)
        return logits

    def _next(self, cache: _PagesCache, token: int) -> torch.Tensor:
        with torch.no_grad():
            ids = torch.tensor([[token]])
            return self.model(ids, past_key_values=cache).logits[0, -1].float()
