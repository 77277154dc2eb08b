"""Prompts by torch's `varlen_attn` (FlashAttention): rows without a prefix over their own keys and
values as they come, others over those that are gathered from pages before.

Signature and meaning: torch.nn.attention.varlen of torch 2.11 to 2.13.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape
from tandem.kernels.prompt_kernels import NewKeys, PromptCalls, PromptRows, key_places
from tandem.kernels.upload import upload

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_HEAD_DIM = 256  # of FlashAttention; a multiple of 8
ARGUMENTS = frozenset({"return_aux", "scale", "window_size"})
"""By name, all of which torch 2.11 has; before, one or another is missing."""
GROUPS = "enable_gqa"
"""By which torch from 2.12 on is told of groups of query heads; 2.11 does not ask."""


class VarlenPrompts:
    """Plans of one engine.

    Args:
        attend: `varlen_attn`. with_lse: its `AuxRequest` that asks for the sums, too.
        device: of pages. heads: query heads. shape: of one layer's pages.
        scale: of scores.
        asks_for_groups: `attend` has the argument `GROUPS`.
    """

    windows = True
    serves = "prompts"

    def __init__(
        self,
        attend: Callable[..., Any],
        with_lse: object,
        device: torch.device,
        heads: int,
        shape: PageShape,
        scale: float,
        *,
        asks_for_groups: bool = True,
    ) -> None:
        self._asks_for_groups = asks_for_groups
        self._attend, self._with_lse, self._device = attend, with_lse, device
        self._heads, self._shape, self._scale = heads, shape, scale

    @property
    def name(self) -> str:
        """Whose kernels."""
        return "torch's varlen_attn"

    def plan(self, rows: PromptRows) -> PromptCalls:
        """Rows whose keys are all of this step by themselves: theirs need not be gathered."""
        fresh = rows.num_keys == np.diff(rows.query_start)
        parts = [self._part(rows, chosen) for chosen in (fresh, ~fresh) if chosen.any()]
        return _Calls(self._attend, parts)

    def plan_decodes(self, rows: PromptRows) -> None:
        """The kernels beside it are for them."""
        del rows

    def _part(self, rows: PromptRows, chosen: "NDArray[np.bool_]") -> "_Part":
        own, whole = rows.chosen(chosen), bool(chosen.all())
        block, offset = key_places(own, self._shape.block_size)
        options = {
            "cu_seq_q": upload(own.query_start.astype(np.int32), self._device),
            "cu_seq_k": upload(np.cumsum([0, *own.num_keys]).astype(np.int32), self._device),
            "max_q": int(np.diff(own.query_start).max()),
            "max_k": int(own.num_keys.max()),
            "return_aux": self._with_lse,
            "scale": self._scale,
            # to the left beside a token's own, -1: all; none to the right: causal
            "window_size": (rows.window - 1, 0),
        }
        if self._asks_for_groups:
            options[GROUPS] = self._heads != self._shape.kv_heads
        return _Part(
            None if whole else upload(rows.tokens_of(chosen), self._device),
            own.num_tokens == len(block),
            upload(block, self._device),
            upload(offset, self._device),
            options,
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows, by one call.

    Attributes:
        tokens: int64; theirs among all rows'; None: they are all.
        is_fresh: their keys are their tokens' own.
        block, offset: of their keys, int64 [keys].
    """

    tokens: Tensor | None
    is_fresh: bool
    block: Tensor
    offset: Tensor
    options: dict[str, Any]

    def keys_values(self, pages: Tensor, new: NewKeys | None) -> tuple[Tensor, Tensor]:
        """As they came, where they did in this step; else from the pages: [keys, ...] each."""
        if self.is_fresh and new is not None:
            return _selected(new.key, self.tokens), _selected(new.value, self.tokens)
        held = pages[self.block, :, :, self.offset]  # [keys, 2, kv_heads, head_dim]
        return held[:, 0], held[:, 1]


class _Calls:
    def __init__(self, attend: Callable[..., Any], parts: Sequence[_Part]) -> None:
        self._attend, self._parts = attend, parts

    def attend(self, q: Tensor, pages: Tensor, new: NewKeys | None = None) -> AttentionOutput:
        """The kernel's sums come as [heads, tokens]."""
        if len(self._parts) == 1:
            return self._call(self._parts[0], q, pages, new)
        result = AttentionOutput(
            torch.empty(q.shape, dtype=torch.float32, device=q.device),
            torch.empty(q.shape[:2], dtype=torch.float32, device=q.device),
        )
        for part in self._parts:
            made = self._call(part, q, pages, new)
            assert part.tokens is not None
            result.out.index_copy_(0, part.tokens, made.out)
            result.lse.index_copy_(0, part.tokens, made.lse)
        return result

    def _call(self, part: _Part, q: Tensor, pages: Tensor, new: NewKeys | None) -> AttentionOutput:
        key, value = part.keys_values(pages, new)
        out, lse = self._attend(_selected(q, part.tokens), key, value, **part.options)
        return AttentionOutput(out.float(), lse.float().T.contiguous())


def _selected(tensor: Tensor, tokens: Tensor | None) -> Tensor:
    """Of some tokens; None: of all."""
    return tensor if tokens is None else tensor.index_select(0, tokens)
