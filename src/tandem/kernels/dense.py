"""Attention over contiguous keys and values in fp32, with its log-sum-exp."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

SCORE_LIMIT_BYTES = 64 << 20  # of the score matrix where one is materialised


class AttentionOutput(NamedTuple):
    """Attention over a set of keys, mergeable with attention over others (`merge_states`).

    Attributes:
        out: float32 [..., head_dim]; 0 where no key was seen.
        lse: float32 [...]; natural log of the sum of exponentiated scores, -inf if no key was seen.
    """

    out: Tensor
    lse: Tensor


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """Scores of query-key products: times `scale`, then `cap * tanh(score / cap)`; 0: no cap."""

    scale: float
    soft_cap: float = 0.0


def dense_attention(
    q: Tensor,  # [b, h, n, d] float32, last dimension contiguous
    k: Tensor,  # [b, h or 1, s, d] float32, s >= 1
    v: Tensor,  # [b, h or 1, s, d] float32
    rule: ScoreRule,
    *,
    causal: bool = False,
    mask: Tensor
    | None = None,  # [b or 1, 1, 1 or n, s] float32, added to scores; finite for some key
) -> AttentionOutput:
    """Softmax attention; query i of a causal call sees keys 0..i (then n == s, mask None).

    Keys and values must be finite even where masked.

    Returns:
        out [b, h, n, d], lse [b, h, n].
    """
    if q.device.type == "cpu" and not rule.soft_cap:
        return _flash(q, k, v, rule.scale, causal, mask)
    return plain_attention(q, k, v, rule, causal=causal, mask=mask)


def plain_attention(
    q: Tensor,  # [b, h, n, d] float32
    k: Tensor,  # [b, h or 1, s, d] float32
    v: Tensor,  # [b, h or 1, s, d] float32
    rule: ScoreRule,
    *,
    causal: bool = False,
    mask: Tensor | None = None,  # [b or 1, 1, 1 or n, s] float32
    score_limit_bytes: int = SCORE_LIMIT_BYTES,
) -> AttentionOutput:
    """`dense_attention` in elementary operations for any device, some queries at a time."""
    b, h, n, _ = q.shape
    step = max(1, score_limit_bytes // (b * h * k.shape[2] * 4))
    starts = range(0, n, step)
    parts = [
        _plain(
            q[:, :, i : i + step],
            k,
            v,
            rule,
            i if causal else None,
            mask if mask is None or mask.shape[2] == 1 else mask[:, :, i : i + step],
        )
        for i in starts
    ]
    if len(parts) == 1:
        return parts[0]
    return AttentionOutput(*(torch.cat(part, 2) for part in zip(*parts, strict=True)))


def _flash(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, mask: Tensor | None
) -> AttentionOutput:
    heads = q.shape[1]
    if k.shape[1] != heads:  # grouped queries: a view with stride 0, which the kernel reads as such
        k, v = k.expand(-1, heads, -1, -1), v.expand(-1, heads, -1, -1)
    if mask is not None:
        mask = mask.expand(q.shape[0], -1, q.shape[2], -1)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, attn_mask=mask, scale=scale
    )
    return AttentionOutput(out, lse)


def _plain(
    q: Tensor,  # [b, h, n, d]
    k: Tensor,
    v: Tensor,
    rule: ScoreRule,
    first: int | None,  # query i sees keys 0..first+i; None: all
    mask: Tensor | None,
) -> AttentionOutput:
    b, h, n, d = q.shape
    folded = k.shape[1] != h  # grouped queries share keys: make their heads rows of one product
    rows = (q * rule.scale).reshape(b, 1, h * n, d) if folded else q * rule.scale
    scores = torch.matmul(rows, k.transpose(-1, -2)).view(b, h, n, -1)
    if rule.soft_cap:
        scores = scores.div_(rule.soft_cap).tanh_().mul_(rule.soft_cap)
    if mask is not None:
        scores += mask
    if first is not None:
        keys = torch.arange(k.shape[2], device=q.device)
        queries = torch.arange(first, first + n, device=q.device)
        scores.masked_fill_(keys > queries[:, None], -torch.inf)
    lse = torch.logsumexp(scores, -1)
    probs = torch.softmax(scores, -1)
    if folded:
        probs = probs.view(b, 1, h * n, -1)
    return AttentionOutput(torch.matmul(probs, v).view(b, h, n, d), lse)
