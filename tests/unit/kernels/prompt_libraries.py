"""FlashInfer's wrapper, torch's `varlen_attn` and its memory-efficient attention as they are
documented, in float64 on the CPU.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor


def attend_row(
    q: Tensor,  # [queries, heads, head_dim]
    k: Tensor,  # [keys, kv_heads, head_dim]
    v: Tensor,
    scale: float,
    left: int,
    soft_cap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Causal, aligned at the last key; keys at most `left` before a token's own, -1: all."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    own = torch.arange(len(q))[:, None] + len(k) - len(q)
    age = own - torch.arange(len(k))
    scores.masked_fill_((age < 0) | ((age > left) if left >= 0 else (age < 0)), -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v), scores.logsumexp(-1)


class AuxRequest:
    """What is wanted beside the result."""

    lse = True


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The second result is [heads, tokens], as the kernel's is."""
    assert return_aux is not None
    assert return_aux.lse
    assert cu_seq_k is not None
    assert scale is not None
    assert window_size[1] == 0
    assert enable_gqa == (query.shape[1] != key.shape[1])
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == int(cu_seq_q.diff().max())
    assert max_k == int(cu_seq_k.diff().max())
    rows = zip(
        query.split(cu_seq_q.diff().tolist()),
        key.split(cu_seq_k.diff().tolist()),
        value.split(cu_seq_k.diff().tolist()),
        strict=True,
    )
    made = [attend_row(q, k, v, scale, window_size[0]) for q, k, v in rows]
    out = torch.cat([out for out, _ in made]).to(query.dtype)
    return out, torch.cat([lse for _, lse in made], 1).float()


def efficient_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
    """Rows joined in a batch of one; the second result is [rows, heads, tokens], as many tokens as
    the longest row has, rounded up to 32: what lies behind a row's own is anything.
    """
    assert (bias, dropout_p, custom_mask_type, compute_log_sumexp) == (None, 0.0, 2, True)
    assert cu_seqlens_q is not None
    assert cu_seqlens_k is not None
    assert max_seqlen_q is not None
    assert max_seqlen_k is not None
    assert scale is not None
    assert len(query) == len(key) == len(value) == 1
    assert query.shape[2:] == key.shape[2:] == value.shape[2:], "heads are not shared"
    assert all(each.stride(-1) == 1 for each in (query, key, value))
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert max_seqlen_q == int(cu_seqlens_q.diff().max())
    assert max_seqlen_k == int(cu_seqlens_k.diff().max())
    lengths, counts = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()
    rows = zip(query[0].split(lengths), key[0].split(counts), value[0].split(counts), strict=True)
    sums = torch.full((len(lengths), query.shape[2], -(-max_seqlen_q // 32) * 32), torch.nan)
    outs: list[Tensor] = []
    for number, (q, k, v) in enumerate(rows):
        out, lse = attend_row(q, k, v, scale, -1)
        outs.append(out)
        sums[number, :, : len(q)] = lse
    none = torch.zeros((), dtype=torch.int64)
    made = torch.cat(outs).to(query.dtype)[None]
    return made, sums, none, none, max_seqlen_q, max_seqlen_k


class BatchPrefillWithPagedKVCacheWrapper:
    """FlashInfer's, of as much as is used."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        assert float_workspace_buffer.dtype is torch.uint8
        assert kv_layout == "HND"
        self._planned: dict[str, Any] = {}

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
    ) -> None:
        for each in (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len):
            assert each.dtype is torch.int32
        assert len(qo_indptr) == len(paged_kv_indptr) == len(paged_kv_last_page_len) + 1
        assert len(paged_kv_indices) == int(paged_kv_indptr[-1])
        assert causal
        self._planned = dict(locals())

    def run(
        self, q: Tensor, paged_kv_cache: Tensor, *, return_lse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The second result is [tokens, heads], in base 2."""
        p = self._planned
        shape = (2, p["num_kv_heads"], p["page_size"], p["head_dim_qk"])
        assert return_lse
        assert q.dtype is p["q_data_type"]
        assert q.shape[1:] == (p["num_qo_heads"], p["head_dim_qk"])
        assert paged_kv_cache.shape[1:] == shape
        assert paged_kv_cache.dtype is p["kv_data_type"]
        outs: list[Tensor] = []
        lses: list[Tensor] = []
        for r, rows in enumerate(q.split(p["qo_indptr"].diff().tolist())):
            first, last = p["paged_kv_indptr"][r : r + 2].tolist()
            held = paged_kv_cache[p["paged_kv_indices"][first:last].long()]
            keys = (last - first - 1) * p["page_size"] + int(p["paged_kv_last_page_len"][r])
            k, v = held.permute(1, 0, 3, 2, 4).flatten(1, 2)[:, :keys]
            out, lse = attend_row(rows, k, v, p["sm_scale"], p["window_left"], p["logits_soft_cap"])
            outs.append(out)
            lses.append(lse.T / math.log(2.0))
        return torch.cat(outs).to(q.dtype), torch.cat(lses).float()


class BatchDecodeWithPagedKVCacheWrapper:
    """FlashInfer's, of as much as is used."""

    made: ClassVar[list[bool]] = []

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
    ) -> None:
        assert float_workspace_buffer.dtype is torch.uint8
        assert kv_layout == "HND"
        assert not use_cuda_graph
        assert not float_workspace_buffer.any(), "it counts in it from zero"
        self.made.append(use_tensor_cores)
        self._wrapper = BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
        sm_scale: float | None = None,
    ) -> None:
        """A token to a row."""
        starts = torch.arange(len(indptr), dtype=torch.int32)
        self._wrapper.plan(
            starts, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
            causal=True, sm_scale=sm_scale, window_left=window_left,
            logits_soft_cap=logits_soft_cap, q_data_type=q_data_type, kv_data_type=kv_data_type,
        )  # fmt: skip

    def run(
        self, q: Tensor, paged_kv_cache: Tensor, *, return_lse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The second result is [rows, heads], in base 2."""
        return self._wrapper.run(q, paged_kv_cache, return_lse=return_lse)
