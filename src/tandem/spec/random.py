"""Counter-based random numbers: a pure function of (seed, position), the same on every machine.

Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011). Nothing is
stateful, so a request's numbers depend neither on its batch nor on what ran before (contract 6).
"""

import numpy as np
from numpy.typing import NDArray

UintArray = NDArray[np.uint64]

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10
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
    c0, c1, c2, c3 = (counter[..., i] for i in range(4))
    k0, k1 = key[..., 0], key[..., 1]
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c2 = (product1 >> _SHIFT) ^ c1 ^ k0, (product0 >> _SHIFT) ^ c3 ^ k1
        c1, c3 = product1 & _MASK, product0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return np.stack((c0, c1, c2, c3), axis=-1)


def uniform(seeds: UintArray, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) per (seed, position), with 53 random bits.

    Args:
        seeds: uint64 [n].
        positions: int64 [n], at least 0.
    """
    n = len(seeds)
    position = positions.astype(np.uint64)
    words = philox4x32(_counter(position, np.zeros(n, np.uint64), _UNIFORM), _split(seeds))
    high, low = words[:, 0] >> np.uint64(5), words[:, 1] >> np.uint64(6)
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
    words = philox4x32(_counter(index, np.array([child], np.uint64), _DERIVE), _split(seeds))
    return int(words[0, 0]) << 32 | int(words[0, 1])


def _split(values: UintArray) -> UintArray:
    return np.stack((values & _MASK, values >> _SHIFT), axis=-1)


def _counter(low: UintArray, high: UintArray, use: int) -> UintArray:
    upper = np.stack((high, np.full_like(high, use)), axis=-1)
    return np.concatenate((_split(low), upper), axis=-1)
