"""Heads of tokens as kernels take them that stride from token to token."""

from torch import Tensor


def with_whole_tokens(values: Tensor) -> Tensor:
    """[tokens, heads, elements], each token's heads contiguous, as a slice of fused projections has
    them; else copied.
    """
    _, heads, elements = values.shape
    whole = values.stride(2) == 1 and (heads == 1 or values.stride(1) == elements)
    return values if whole else values.contiguous()
