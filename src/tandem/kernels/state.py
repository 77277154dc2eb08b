"""Merging attention over disjoint sets of keys (contract 8)."""

import torch
from torch import Tensor


def merge_states(
    out_a: Tensor,  # [..., heads, head_dim] float32
    lse_a: Tensor,  # [..., heads] float32
    out_b: Tensor,  # [..., heads, head_dim] float32
    lse_b: Tensor,  # [..., heads] float32
) -> tuple[Tensor, Tensor]:
    """Attention over the union of two disjoint key sets, from the attention over each.

    `lse` is the natural logarithm of the sum of exponentiated scores; -inf means "saw no key", and
    then the other side is returned exactly, whatever finite values this side's `out` holds. If
    neither side saw a key the result is out 0, lse -inf.

    Returns:
        out [..., heads, head_dim], lse [..., heads]; new tensors.
    """
    lse = torch.logaddexp(lse_a, lse_b)
    # -inf - -inf is nan: a token without any key keeps weight 0 on both sides.
    base = lse.masked_fill(lse == -torch.inf, 0.0)
    weight_a = torch.exp(lse_a - base).unsqueeze(-1)
    weight_b = torch.exp(lse_b - base).unsqueeze(-1)
    return (out_a * weight_a).addcmul_(out_b, weight_b), lse


def apply_sinks(
    out: Tensor,  # [..., heads, head_dim] float32
    lse: Tensor,  # [..., heads] float32
    sinks: Tensor,  # [heads] float32; finite, or -inf for a head without one
) -> tuple[Tensor, Tensor]:
    """Attention with a further logit per head that takes part in the softmax without a value.

    The last step, after all partial results have been merged: a sink counts once, however many
    pieces the keys were in. It adds `exp(sink)` to a denominator of `exp(lse)`, so that weights
    shrink by `exp(lse - lse')` with `lse' = log(exp(lse) + exp(sink))`; this is exact, and the
    same as merging with keys that have the log-sum-exp `sink` and values of 0.

    Returns:
        out [..., heads, head_dim], lse [..., heads] with the sink; new tensors.
    """
    return merge_states(out, lse, torch.zeros_like(out), sinks.expand_as(lse))
