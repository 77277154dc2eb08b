"""Counter-based random numbers: a pure function of (seed, position), the same on every machine.

Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011). Nothing is
stateful, so a request's numbers depend neither on its batch nor on what ran before (contract 6).
"""

import numpy as np
from numpy.typing import NDArray

UintArray = NDArray[np.uint64]

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
# Columns: words 0 and 2 of the counter go through a round together, each with its own constants.
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint32)
_ROUNDS = 10
_WEYL_OF_ROUND = np.arange(_ROUNDS, dtype=np.uint32)[:, None, None] * _WEYL
# The last counter word keeps the uses apart.
_UNIFORM, _DERIVE = 0, 1


def philox4x32(counter: UintArray, key: UintArray) -> UintArray:
    """Ten rounds of Philox4x32.

    Args:
        counter: uint64 [..., 4], each below 2**32.
        key: uint64 [..., 2], each below 2**32.

    Returns:
        uint64 [..., 4], each below 2**32 and uniformly distributed.
    """
    flat = counter.reshape(-1, 4).T
    even, odd = flat[::2].copy(), flat[1::2].copy()
    first_key = np.ascontiguousarray(key.reshape(-1, 2).T, np.uint32)
    keys = (first_key + _WEYL_OF_ROUND).astype(np.uint64)  # 32 bits wrap as they should
    # Operands of full shape in buffers made once: for some hundred counters, a round is as long as
    # the calls that it takes.
    multipliers = np.broadcast_to(_MULTIPLIERS, even.shape).copy()
    product = np.empty_like(even)
    for round_key in keys:
        np.multiply(even, multipliers, out=product)
        np.right_shift(product, _SHIFT, out=even[::-1])
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_xor(even, round_key, out=even)
        np.bitwise_and(product, _MASK, out=odd[::-1])
    words = np.empty((flat.shape[1], 4), np.uint64)
    words[:, ::2], words[:, 1::2] = even.T, odd.T
    return words.reshape(counter.shape)


def uniform(seeds: UintArray, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Two numbers in [0, 1) per (seed, position), each with 53 random bits.

    Args:
        seeds: uint64 [n].
        positions: int64 [n], at least 0.

    Returns:
        float64 [n, 2].
    """
    position = positions.astype(np.uint64)
    words = philox4x32(_counter(position, 0, _UNIFORM), _split(seeds))
    high, low = words[:, ::2] >> np.uint64(5), words[:, 1::2] >> np.uint64(6)
    return ((high << np.uint64(26)) | low).astype(np.float64) * 2.0**-53


def derive_seed(engine_seed: int, request_index: int, child: int) -> int:
    """An unsigned 64-bit seed for one sequence: the `child`-th of a request.

    Args:
        engine_seed: the engine's or the request's own seed; taken modulo 2**64.
        request_index: number of the request, 0 if `engine_seed` is the request's own.
        child: 0..n-1 for a request with n sequences.
    """
    seeds = np.array([engine_seed % 2**64], np.uint64)
    index = np.array([request_index % 2**64], np.uint64)
    words = philox4x32(_counter(index, child, _DERIVE), _split(seeds))
    return int(words[0, 0]) << 32 | int(words[0, 1])


def _split(values: UintArray) -> UintArray:
    words = np.empty((len(values), 2), np.uint64)
    words[:, 0], words[:, 1] = values & _MASK, values >> _SHIFT
    return words


def _counter(low: UintArray, high: int, use: int) -> UintArray:
    words = np.empty((len(low), 4), np.uint64)
    words[:, 0], words[:, 1] = low & _MASK, low >> _SHIFT
    words[:, 2], words[:, 3] = high, use
    return words
