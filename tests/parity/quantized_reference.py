"""A transformers model whose KV cache holds what quantized pages hold."""

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from tandem.memory.quantized_page import QuantizedPage
from tandem.quant.kv_format import dequantize, quantize


class QuantizedCache(DynamicCache):
    """Quantizes and dequantizes keys and values on their way in, the newest ones too."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self._bits = bits

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """As the page has them: `[batch, kv_heads, tokens, head_dim]`."""
        page = QuantizedPage(self._bits, 1, 16, key_states.shape[-1])
        held = [dequantize(*quantize(x, page), page) for x in (key_states, value_states)]
        return super().update(held[0], held[1], layer_idx, *args, **kwargs)


class QuantizedModel:
    """What `greedy.Reference` calls of a model, with such a cache."""

    def __init__(self, model: PreTrainedModel, bits: int) -> None:
        self._model: Any = model
        self._bits = bits

    def generate(self, ids: torch.Tensor, **options: Any) -> torch.Tensor:
        """The model's own, from an empty cache."""
        return self._model.generate(ids, past_key_values=QuantizedCache(self._bits), **options)

    def __call__(self, ids: torch.Tensor) -> Any:
        """The model's own, from an empty cache."""
        return self._model(ids, past_key_values=QuantizedCache(self._bits), use_cache=True)
