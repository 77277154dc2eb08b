"""Other libraries' kernels for rows of several tokens, perhaps of one, beside kernels that do all
else.

Rows whose keys lie in both tiers, appends, merges and graphs stay with the kernels that are
wrapped: a library is asked only for what it means the same by, prompts and chunks whose keys are
all in this tier, rows of one token if it has kernels for them, and windows only if it has those.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import MergingKernels, PlannedAttention, StaticKernels
from tandem.plan.binding import IntArray, LongArray, TierAttention

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Rows of tokens that follow each other, each token seeing all keys up to its own.

    Attributes:
        query_start: int32 [rows + 1]; from 0.
        num_keys: int32 [rows]; up to each row's last token.
        block_table: int32 [rows, blocks]; beyond a row's own keys it means nothing.
        window: last keys that a token sees, its own among them; 0: all.
    """

    query_start: IntArray
    num_keys: IntArray
    block_table: IntArray
    window: int

    @property
    def num_tokens(self) -> int:
        """Of all rows."""
        return int(self.query_start[-1])

    def chosen(self, rows: "NDArray[np.bool_]") -> "PromptRows":
        """Some of them: bool [rows]."""
        counts = np.diff(self.query_start)[rows]
        starts = np.cumsum([0, *counts]).astype(np.int32)
        return PromptRows(starts, self.num_keys[rows], self.block_table[rows], self.window)

    def tokens_of(self, rows: "NDArray[np.bool_]") -> LongArray:
        """Where the tokens of some rows, bool [rows], are among all: int64."""
        return np.flatnonzero(np.repeat(rows, np.diff(self.query_start)))


@dataclass(frozen=True, slots=True)
class NewKeys:
    """Keys and values of the same tokens as queries, as they were appended to pages, or will be:
    [t, kv_heads, head_dim] each, in the type that pages hold.
    """

    key: Tensor
    value: Tensor


class PromptCalls(Protocol):
    """What a library has planned for some rows; serves every layer of the same window."""

    def attend(self, q: Tensor, pages: Tensor, new: NewKeys | None = None) -> AttentionOutput:
        """Attention of q `[t, heads, head_dim]`, all tokens of the rows, over one layer's pages.

        Args:
            new: of the same tokens, for libraries that need not find them in pages.
        """
        ...


class PromptLibrary(Protocol):
    """Attention within prompts by a library.

    Attributes:
        windows: it takes rows whose tokens see a window of their keys.
        serves: for people, which rows it takes.
    """

    windows: bool
    serves: str

    @property
    def name(self) -> str:
        """For people: what runs."""
        ...

    def plan(self, rows: PromptRows) -> PromptCalls:
        """Decide how the keys are read."""
        ...

    def plan_decodes(self, rows: PromptRows) -> PromptCalls | None:
        """The same of rows of one token each; None: it has no kernels for them."""
        ...


class WrappedKernels(StaticKernels, MergingKernels, Protocol):
    """What a GPU's kernels can do."""


@dataclass(frozen=True, slots=True)
class SharedAttention:
    """A batch's first rows by the wrapped kernels, or by the library, which has the others; None:
    there are none.

    Attributes:
        own_tokens: of the first rows.
    """

    own: PlannedAttention | None
    own_tokens: int
    prompts: PromptCalls | None
    num_tokens: int
    decodes: PromptCalls | None = None


class PromptKernels:
    """A tier's kernels, of which a library takes over prompts."""

    def __init__(self, kernels: WrappedKernels, library: PromptLibrary) -> None:
        self._kernels, self._library = kernels, library

    @property
    def name(self) -> str:
        """Both."""
        library = self._library
        return f"{library.name} for {library.serves}, {self._kernels.name} for the rest"

    @property
    def shape(self) -> PageShape:
        """Of one layer's pages."""
        return self._kernels.shape

    def plan(self, attention: TierAttention, window: int = 0) -> SharedAttention:
        """All rows for the library where it can; rows of one token else for the wrapped kernels."""
        num_tokens, first = int(attention.query_start[-1]), attention.num_decode
        last = len(attention.block_table)
        if attention.block_index is not None or (window and not self._library.windows):
            own = self._kernels.plan(attention, window)
            return SharedAttention(own, num_tokens, None, num_tokens)
        own, decodes, prompts = None, None, None
        if first:
            alone = attention.rows(0, first)
            decodes = self._library.plan_decodes(prompt_rows(alone, window))
            own = self._kernels.plan(alone, window) if decodes is None else None
        if first < last:
            prompts = self._library.plan(prompt_rows(attention.rows(first, last), window))
        return SharedAttention(own, first, prompts, num_tokens, decodes)

    def plan_static(self, position: Tensor, table: Tensor, window: int = 0) -> SharedAttention:
        """Rows of one token are the wrapped kernels'."""
        own = self._kernels.plan_static(position, table, window)
        return SharedAttention(own, own.num_tokens, None, own.num_tokens)

    def attend(
        self, q: Tensor, pages: Tensor, planned: PlannedAttention, new: NewKeys | None = None
    ) -> AttentionOutput:
        """Each its rows.

        Args:
            new: keys and values of all tokens of `q`, where they are at hand.
        """
        assert isinstance(planned, SharedAttention)
        parts: list[AttentionOutput] = []
        alone = q[: planned.own_tokens]
        if planned.own is not None:
            parts.append(self._kernels.attend(alone, pages, planned.own))
        if planned.decodes is not None:
            parts.append(planned.decodes.attend(alone.contiguous(), pages))
        if planned.prompts is not None:
            rest = slice(planned.own_tokens, None)
            own = None if new is None else NewKeys(new.key[rest], new.value[rest])
            parts.append(planned.prompts.attend(q[rest].contiguous(), pages, own))
        if len(parts) == 1:
            return parts[0]
        return AttentionOutput(*(torch.cat(both) for both in zip(*parts, strict=True)))

    def merge(
        self, here: AttentionOutput, there: AttentionOutput, places: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """See `MergingKernels`."""
        return self._kernels.merge(here, there, places, dtype)

    def plan_append(self, slots: Tensor) -> Tensor:
        """As the wrapped kernels."""
        return self._kernels.plan_append(slots)

    def append(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> None:
        """As the wrapped kernels."""
        self._kernels.append(pages, k, v, planned)

    def copy_blocks(
        self, src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor
    ) -> None:
        """As the wrapped kernels."""
        self._kernels.copy_blocks(src_pages, src_ids, dst_pages, dst_ids)


def prompt_rows(attention: TierAttention, window: int) -> PromptRows:
    """Rows whose keys up to their last token are all in this tier.

    Raises:
        ValueError: tokens of a row do not follow each other.
    """
    starts, positions = attention.query_start, attention.positions
    first, last = positions[starts[:-1]], positions[starts[1:] - 1]
    if not np.array_equal(last - first + 1, np.diff(starts)):
        raise ValueError("tokens of a prompt's row must follow each other")
    return PromptRows(starts, (last + 1).astype(np.int32), attention.block_table, window)


def key_places(rows: PromptRows, block_size: int) -> tuple[LongArray, LongArray]:
    """Block and offset of each row's keys, row after row: int64 [keys] each."""
    keys = [np.arange(count, dtype=np.int64) for count in rows.num_keys]
    blocks = [own[each // block_size] for own, each in zip(rows.block_table, keys, strict=True)]
    return np.concatenate(blocks).astype(np.int64), np.concatenate(keys) % block_size
