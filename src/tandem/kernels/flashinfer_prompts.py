"""Attention by FlashInfer's paged kernels, which read pages as they lie (its layout `HND`).

Signatures and meanings: flashinfer.BatchPrefillWithPagedKVCacheWrapper and
flashinfer.BatchDecodeWithPagedKVCacheWrapper of flashinfer-python 0.6.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape
from tandem.kernels.prompt_kernels import NewKeys, PromptCalls, PromptRows
from tandem.kernels.upload import upload

WORKSPACE_BYTES = 128 << 20  # what its documentation recommends
HEAD_DIMS = (64, 128, 256)  # of its kernels for prompts
_GROUP_FOR_MATRIX_UNITS = 4
"""Query heads to a key head from which on decodes use them: below they would mostly multiply
padding. Not measured here."""

_SIZES = ("sm_scale", "window_left", "logits_soft_cap", "q_data_type", "kv_data_type")
CALLS = {
    "BatchPrefillWithPagedKVCacheWrapper": {
        "__init__": frozenset[str](),
        "plan": frozenset({"causal", *_SIZES}),
        "run": frozenset({"return_lse"}),
    },
    "BatchDecodeWithPagedKVCacheWrapper": {
        "__init__": frozenset({"use_tensor_cores"}),
        "plan": frozenset(_SIZES),
        "run": frozenset({"return_lse"}),
    },
}
"""What is called, by arguments that are given by name."""


class FlashInferPrompts:
    """Plans of one engine; they share a workspace, since one runs at a time.

    Args:
        library: the package `flashinfer`.
        device: of pages. heads: query heads. shape: of one layer's pages, of `dtype`.
        scale: of scores. soft_cap: what bounds them; 0: nothing.
        dtype: of queries.
    """

    windows = True
    serves = "prompts and decodes"

    def __init__(
        self,
        library: Any,
        device: torch.device,
        heads: int,
        shape: PageShape,
        scale: float,
        soft_cap: float,
        dtype: torch.dtype,
    ) -> None:
        self._library, self._device = library, device
        self._heads, self._shape = heads, shape
        self._scale, self._soft_cap, self._dtype = scale, soft_cap, dtype
        # decodes count in it from zero, and leave zeros
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    @property
    def name(self) -> str:
        """Whose kernels."""
        return "FlashInfer"

    def plan(self, rows: PromptRows) -> PromptCalls:
        """A wrapper of its own: steps that are submitted ahead keep theirs."""
        wrapper = self._library.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "HND")
        pages, sizes = self._pages(rows), self._sizes(rows)
        wrapper.plan(_host(rows.query_start), *pages, causal=True, **sizes)
        return _Calls(wrapper)

    def plan_decodes(self, rows: PromptRows) -> PromptCalls:
        """Likewise; each token sees all keys of its row, or the last of a window."""
        large = self._heads // self._shape.kv_heads >= _GROUP_FOR_MATRIX_UNITS
        make = self._library.BatchDecodeWithPagedKVCacheWrapper
        wrapper = make(self._workspace, "HND", use_tensor_cores=large)
        wrapper.plan(*self._pages(rows), **self._sizes(rows))
        return _Calls(wrapper)

    def _pages(self, rows: PromptRows) -> tuple[Tensor, Tensor, Tensor, int, int, int, int]:
        """Where rows' blocks begin among all, those, how full the last ones are, and shapes."""
        shape = self._shape
        blocks = -(-rows.num_keys // shape.block_size)
        table = np.concatenate(
            [own[:count] for own, count in zip(rows.block_table, blocks, strict=True)]
        )
        return (
            _host(np.cumsum([0, *blocks])),
            upload(table.astype(np.int32), self._device),
            _host((rows.num_keys - 1) % shape.block_size + 1),
            self._heads,
            shape.kv_heads,
            shape.head_dim,
            shape.block_size,
        )

    def _sizes(self, rows: PromptRows) -> dict[str, object]:
        return {
            "sm_scale": self._scale,
            "window_left": rows.window - 1,  # beside a token's own; -1: all
            "logits_soft_cap": self._soft_cap,
            "q_data_type": self._dtype,
            "kv_data_type": self._dtype,
        }


class _Calls:
    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def attend(self, q: Tensor, pages: Tensor, new: NewKeys | None = None) -> AttentionOutput:
        """Its sums of exponentials are in base 2."""
        del new  # it reads pages
        out, lse = self._wrapper.run(q, pages, return_lse=True)
        return AttentionOutput(out.float(), lse.float() * math.log(2.0))


def _host(numbers: "np.ndarray[Any, np.dtype[Any]]") -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.int32))
