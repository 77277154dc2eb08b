"""Attention over all keys from attention over parts of them, as Triton kernels (contract 8).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_tiles import LN_2, LOG2_E

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false


@triton.jit(do_not_specialize=["num_tokens"])
def merge_tiers(
    places,  # int32 [2, num_tokens]; each token's place here and there, -1: it has no keys there
    here,  # float32 [tokens here, HEADS, HEAD_DIM]
    here_lse,  # float32 [tokens here, HEADS]
    there,  # as here
    there_lse,
    merged,  # [num_tokens, HEADS, HEAD_DIM]
    num_tokens,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
):
    """Grid: [num_tokens, HEADS]. Attention over the keys of two tiers (contract 8); 0 of a token
    without keys.
    """
    token, head = tl.program_id(0), tl.program_id(1)
    a = tl.load(places + token).to(tl.int64)
    b = tl.load(places + num_tokens + token).to(tl.int64)
    row_a, row_b = tl.maximum(a, 0) * HEADS + head, tl.maximum(b, 0) * HEADS + head
    log_a = tl.where(a >= 0, tl.load(here_lse + row_a), float("-inf"))
    log_b = tl.where(b >= 0, tl.load(there_lse + row_b), float("-inf"))
    highest = tl.maximum(log_a, log_b)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    share_a, share_b = tl.exp2((log_a - base) * LOG2_E), tl.exp2((log_b - base) * LOG2_E)
    total = share_a + share_b
    dim = tl.arange(0, PAD_DIM)
    is_used = dim < HEAD_DIM
    value_a = tl.load(here + row_a * HEAD_DIM + dim, mask=is_used, other=0.0)
    value_b = tl.load(there + row_b * HEAD_DIM + dim, mask=is_used, other=0.0)
    # another token's, where this one has none, must not come in, whatever it holds
    value_a, value_b = tl.where(a >= 0, value_a, 0.0), tl.where(b >= 0, value_b, 0.0)
    result = (value_a * share_a + value_b * share_b) / tl.where(total > 0.0, total, 1.0)
    place = (token.to(tl.int64) * HEADS + head) * HEAD_DIM + dim
    tl.store(merged + place, result.to(merged.dtype.element_ty), mask=is_used)


@triton.jit(do_not_specialize=["num_rows", "splits"])
def merge_splits(
    parts,  # float32 [splits, rows, HEAD_DIM]; rows: tokens x heads
    part_lse,  # float32 [splits, rows]
    out,  # float32 [rows, HEAD_DIM]
    lse,  # float32 [rows]
    num_rows,
    splits,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
    PAD_SPLITS: tl.constexpr,  # a power of two, at least `splits`
):
    """Grid: [rows]. Attention over all keys from that over disjoint splits (contract 8)."""
    row = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, PAD_SPLITS)
    is_split = number < splits
    place = number.to(tl.int64) * num_rows + row
    logs = tl.load(part_lse + place, mask=is_split, other=float("-inf"))
    highest = tl.max(logs, axis=0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    weights = tl.exp2((logs - base) * LOG2_E)
    total = tl.sum(weights, axis=0)
    dim = tl.arange(0, PAD_DIM)
    mask = is_split[:, None] & (dim < HEAD_DIM)[None, :]
    values = tl.load(parts + place[:, None] * HEAD_DIM + dim[None, :], mask=mask, other=0.0)
    result = tl.sum(values * weights[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out + row * HEAD_DIM + dim, result, mask=dim < HEAD_DIM)
    tl.store(lse + row, tl.where(total > 0.0, base + tl.log2(total) * LN_2, float("-inf")))
