"""The arithmetic of a toy model: hashes instead of matrices, exact in any order and any batch."""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOGIT_BITS = np.uint64(40)
_LOGIT_SCALE = 8.0 / 2**24
NAN_TOKEN = 0
"""After this token the model gives no usable logits; it is never chosen."""


def mix(values: Hashes) -> Hashes:
    """A bijective scrambling of 64-bit words (the finalizer of splitmix64)."""
    z = values + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def embed(token_ids: NDArray[np.int64], positions: NDArray[np.int64]) -> Hashes:
    """Hidden word of a token at a position; [t]."""
    return mix(mix(token_ids.astype(np.uint64)) ^ positions.astype(np.uint64))


def query_and_key(hidden: Hashes, layer: int) -> tuple[Hashes, Hashes]:
    """What a layer's attention asks with and is asked by; [t] each."""
    at = mix(np.array([layer + 1], dtype=np.uint64))
    return mix(hidden ^ at), mix(hidden + at)


def attend(queries: Hashes, keys: Hashes, visible: NDArray[np.bool_]) -> Hashes:
    """Sum over the keys that each query sees, so that parts of the keys add up; [t].

    Args:
        queries: [t]; keys: [n]; visible: [t, n].
    """
    words = mix(queries[:, None] ^ keys[None, :])
    return np.where(visible, words, np.uint64(0)).sum(axis=1, dtype=np.uint64)


def advance(hidden: Hashes, attention: Hashes, layer: int) -> Hashes:
    """Hidden word after a layer; [t]."""
    return mix(hidden + mix(attention ^ np.uint64(layer + 101)))


def logits(hidden: Hashes, token_ids: NDArray[np.int64], vocab_size: int) -> NDArray[np.float32]:
    """Scores of the token after each of `token_ids`, between 0 and 8; [n, vocab]."""
    words = mix(hidden[:, None] ^ mix(np.arange(vocab_size, dtype=np.uint64))[None, :])
    scores = ((words >> _LOGIT_BITS).astype(np.float64) * _LOGIT_SCALE).astype(np.float32)
    scores[:, NAN_TOKEN] = -np.inf
    scores[token_ids == NAN_TOKEN] = np.nan
    return scores


def dense_logits(tokens: list[int], num_layers: int, vocab_size: int) -> NDArray[np.float32]:
    """Scores after a whole sequence, without any paging: what every engine must arrive at."""
    token_ids = np.array(tokens, dtype=np.int64)
    positions = np.arange(len(tokens), dtype=np.int64)
    visible = positions[None, :] <= positions[:, None]
    hidden = embed(token_ids, positions)
    for layer in range(num_layers):
        queries, keys = query_and_key(hidden, layer)
        hidden = advance(hidden, attend(queries, keys, visible), layer)
    return logits(hidden[-1:], token_ids[-1:], vocab_size)[0]
