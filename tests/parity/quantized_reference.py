"""A transformers model whose KV cache holds what pages of a narrower type hold."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from tandem.kernels.narrow_floats import decode, encode
from tandem.memory.quantized_page import QuantizedPage
from tandem.models.weights import torch_dtype
from tandem.quant.kv_format import dequantize, quantize
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat


@dataclass(frozen=True, slots=True)
class Held:
    """What a request's pages hold: `kv`, but `tail` from token `first` on."""

    kv: KVType
    tail: KVType
    first: int = 0


class RoundingCache(DynamicCache):
    """Rounds keys and values on their way in, the newest ones too."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """As the pages have them: `[batch, kv_heads, tokens, head_dim]`."""
        before = max(0, self._held.first - self.get_seq_length(layer_idx))
        key, value = (self._round(x, before) for x in (key_states, value_states))
        return super().update(key, value, layer_idx, *args, **kwargs)

    def _round(self, values: torch.Tensor, before: int) -> torch.Tensor:
        """`before` of these tokens come before the tail."""
        head, tail = values[:, :, :before], values[:, :, before:]
        return torch.cat((rounded(head, self._held.kv), rounded(tail, self._held.tail)), 2)


def rounded(values: torch.Tensor, kv: KVType) -> torch.Tensor:
    """What a page of this type gives back of `[..., head_dim]`."""
    if isinstance(kv, CodeType):
        page = QuantizedPage(kv.bits, 1, 16, values.shape[-1])
        return dequantize(*quantize(values, page), page)
    if isinstance(kv, NarrowFloat):
        return decode(encode(values)).to(values.dtype)
    return values.to(torch_dtype(kv)).to(values.dtype)


class QuantizedModel:
    """What `greedy.Reference` calls of a model, with such a cache.

    Args:
        held: or a type that all pages hold.
    """

    def __init__(self, model: PreTrainedModel, held: Held | KVType) -> None:
        self._model: Any = model
        self._held = held if isinstance(held, Held) else Held(held, held)

    def generate(self, ids: torch.Tensor, **options: Any) -> torch.Tensor:
        """The model's own, from an empty cache."""
        return self._model.generate(ids, past_key_values=RoundingCache(self._held), **options)

    def __call__(self, ids: torch.Tensor) -> Any:
        """The model's own, from an empty cache."""
        return self._model(ids, past_key_values=RoundingCache(self._held), use_cache=True)
