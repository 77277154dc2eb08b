"""Decode attention that is bound by memory (KVPR, table 1)."""

_SCORE_PASSES = 4


def unfused_attention_bytes(
    rows: int, context: int, heads: int, kv_size: int, element_bytes: int
) -> int:
    """Bytes that one layer's decode attention moves when it is not one kernel.

    Keys and values are read; scores are written, read and written by the softmax, and read.
    """
    kv = 2 * rows * context * kv_size * element_bytes
    scores = rows * context * heads * element_bytes
    return kv + _SCORE_PASSES * scores
