"""Prompts by torch's memory-efficient attention, over keys and values that are gathered before.

For GPUs before compute capability 8.0, whose matrix units neither Triton nor FlashAttention uses
(ADR 0067). The operation that `scaled_dot_product_attention` calls has one causal mask, aligned at
the first key; the one beneath it also has that aligned at the last, which prompts behind a prefix
need, and takes rows of different lengths at once. Signature and meaning:
`aten::_efficient_attention_forward` of torch 2.5 to 2.13.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape
from tandem.kernels.prompt_kernels import NewKeys, PromptCalls, PromptRows, key_places
from tandem.kernels.upload import upload

TYPES = (torch.float16, torch.float32)  # bfloat16 begins with compute capability 8.0
ALIGNED_DIM = 8  # of heads, so that rows of them are aligned
ARGUMENTS = frozenset(
    {
        "query", "key", "value", "bias", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q",
        "max_seqlen_k", "dropout_p", "custom_mask_type", "compute_log_sumexp", "scale",
    }
)  # fmt: skip
_CAUSAL_FROM_LAST = 2  # `CausalFromBottomRight` of its mask types


class EfficientPrompts:
    """Plans of one engine.

    Args:
        attend: `torch.ops.aten._efficient_attention_forward`.
        device: of pages. shape: of one layer's pages, of the queries' type.
        scale: of scores.
    """

    windows = False
    serves = "prompts"

    def __init__(
        self, attend: Callable[..., Any], device: torch.device, shape: PageShape, scale: float
    ) -> None:
        self._attend, self._device = attend, device
        self._shape, self._scale = shape, scale

    @property
    def name(self) -> str:
        """Whose kernels."""
        return "torch's memory-efficient attention"

    def plan(self, rows: PromptRows) -> PromptCalls:
        """Where each key lies, lengths, and where each token's sum is."""
        if rows.window:
            raise ValueError("it is not asked for windows")
        counts = np.diff(rows.query_start)
        row = np.repeat(np.arange(len(counts)), counts)
        offset = np.arange(rows.num_tokens) - rows.query_start[row]
        options = {
            "bias": None,
            "cu_seqlens_q": upload(rows.query_start.astype(np.int32), self._device),
            "cu_seqlens_k": upload(np.cumsum([0, *rows.num_keys]).astype(np.int32), self._device),
            "max_seqlen_q": int(counts.max()),
            "max_seqlen_k": int(rows.num_keys.max()),
            "dropout_p": 0.0,
            "custom_mask_type": _CAUSAL_FROM_LAST,
            "compute_log_sumexp": True,
            "scale": self._scale,
        }
        block, place = key_places(rows, self._shape.block_size)
        return _Calls(
            self._attend,
            _Places(*(upload(each, self._device) for each in (block, place, row, offset))),
            options,
        )

    def plan_decodes(self, rows: PromptRows) -> None:
        """The kernels beside it are for them."""
        del rows


@dataclass(frozen=True, slots=True)
class _Places:
    """Of each key its block and offset there, int64 [keys]; of each token its row, and its offset
    in that, int64 [tokens].
    """

    block: Tensor
    offset: Tensor
    row: Tensor
    token: Tensor


class _Calls:
    def __init__(
        self, attend: Callable[..., Any], places: _Places, options: dict[str, Any]
    ) -> None:
        self._attend, self._places, self._options = attend, places, options

    def attend(self, q: Tensor, pages: Tensor, new: NewKeys | None = None) -> AttentionOutput:
        """A launch for each KV head, whose query heads see one copy of its keys; the kernel wants
        as many KV heads as query heads, and copies of long prefixes for each would be dear.
        """
        del new  # a copy is made in any case
        places = self._places
        held = pages[places.block, :, :, places.offset]  # [keys, 2, kv_heads, head_dim]
        keys, _, kv_heads, head_dim = held.shape
        group = q.shape[1] // kv_heads
        result = AttentionOutput(
            torch.empty(q.shape, dtype=torch.float32, device=q.device),
            torch.empty(q.shape[:2], dtype=torch.float32, device=q.device),
        )
        # groups of one head are heads like any others, and need one launch
        launches, heads = (1, kv_heads) if group == 1 else (kv_heads, group)
        for number in range(launches):
            own = slice(number * heads, (number + 1) * heads)
            if group == 1:
                k, v = held.unbind(1)
            else:
                k, v = (
                    each[:, None].expand(keys, group, head_dim)
                    for each in held[:, :, number].unbind(1)
                )
            out, lse, *_ = self._attend(q[None, :, own], k[None], v[None], **self._options)
            result.out[:, own] = out[0]
            # [rows, heads, tokens of the longest row and some more]
            result.lse[:, own] = lse[places.row, :, places.token]
        return result
