"""Chained hashes of full blocks of tokens."""

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 16
TokenIds = Sequence[int] | NDArray[np.int32] | NDArray[np.int64]
_IS_NATIVE_INT32 = array("i").itemsize == 4 and sys.byteorder == "little"


class BlockHasher:
    """Digest of block i = blake2b-128(digest of block i-1, the block's token ids as int32).

    Equal digests therefore mean equal tokens *and* equal everything before them, which is what
    makes KV entries equal. The first block's parent is a digest of the salt: sequences under
    different salts share nothing.
    """

    __slots__ = ("_block_size", "_root")

    def __init__(self, block_size: int, *, salt: bytes = b"") -> None:
        if block_size < 1:
            raise ValueError(f"block size must be at least 1, not {block_size}")
        self._block_size = block_size
        self._root = blake2b(salt, digest_size=DIGEST_BYTES).digest()

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._block_size

    def extend(self, digests: list[bytes], tokens: TokenIds) -> None:
        """Append to `digests` those of the full blocks of `tokens` that it does not cover yet.

        Args:
            digests: of the first `len(digests)` blocks of the same sequence; extended in place.
            tokens: the whole sequence so far; only the new full blocks of it are read.
        """
        size, first = self._block_size, len(digests)
        count = len(tokens) // size - first
        if count <= 0:
            return
        parent = digests[-1] if digests else self._root
        new = _int32_bytes(tokens[first * size : (first + count) * size])
        for start in range(0, len(new), 4 * size):
            block = new[start : start + 4 * size]
            parent = blake2b(parent + block, digest_size=DIGEST_BYTES).digest()
            digests.append(parent)

    def digests(self, tokens: TokenIds) -> list[bytes]:
        """Digests of all full blocks of a sequence, in order."""
        digests: list[bytes] = []
        self.extend(digests, tokens)
        return digests


def _int32_bytes(tokens: TokenIds) -> bytes:
    """Token ids as little-endian int32; a sequence's own array, which most are, as it lies."""
    if _IS_NATIVE_INT32 and isinstance(tokens, array) and tokens.typecode == "i":
        return tokens.tobytes()
    return np.asarray(tokens, dtype="<i4").tobytes()
