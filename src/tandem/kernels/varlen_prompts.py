"""Prompts by torch's `varlen_attn` (FlashAttention), over keys and values that are gathered before.

Signature and meaning: torch.nn.attention.varlen of torch 2.11 to 2.13.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape
from tandem.kernels.prompt_kernels import PromptCalls, PromptRows, key_places
from tandem.kernels.upload import upload

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
        """Where each key lies, and lengths."""
        block, offset = key_places(rows, self._shape.block_size)
        options = {
            "cu_seq_q": upload(rows.query_start.astype(np.int32), self._device),
            "cu_seq_k": upload(np.cumsum([0, *rows.num_keys]).astype(np.int32), self._device),
            "max_q": int(np.diff(rows.query_start).max()),
            "max_k": int(rows.num_keys.max()),
            "return_aux": self._with_lse,
            "scale": self._scale,
            # to the left beside a token's own, -1: all; none to the right: causal
            "window_size": (rows.window - 1, 0),
        }
        if self._asks_for_groups:
            options[GROUPS] = self._heads != self._shape.kv_heads
        places = upload(block, self._device), upload(offset, self._device)
        return _Calls(self._attend, places, options)


class _Calls:
    def __init__(
        self,
        attend: Callable[..., Any],
        places: tuple[Tensor, Tensor],  # int64 [keys] each
        options: dict[str, Any],
    ) -> None:
        self._attend, self._places, self._options = attend, places, options

    def attend(self, q: Tensor, pages: Tensor) -> AttentionOutput:
        """The kernel's sums come as [heads, tokens]."""
        block, offset = self._places
        held = pages[block, :, :, offset]  # [keys, 2, kv_heads, head_dim]
        out, lse = self._attend(q, held[:, 0], held[:, 1], **self._options)
        return AttentionOutput(out.float(), lse.float().T.contiguous())
