import numpy as np
import pytest

from tandem.spec.random import derive_seed, philox4x32, uniform

# The known-answer vectors of Random123 1.14 (tests/kat_vectors, philox4x32 10).
_PI = "243f6a88 85a308d3 13198a2e 03707344"


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (" ".join(["ffffffff"] * 4), "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (_PI, "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_words(counter: str, key: str, expected: str) -> None:
    words = philox4x32(_words(counter), _words(key))
    assert words.tolist() == _words(expected).tolist()


def test_uniform_uses_two_words_for_each_of_two_numbers() -> None:
    numbers = uniform(np.array([0], np.uint64), np.array([0], np.int64))[0]
    words = ((0x6627E8D5, 0xE169C58D), (0xBC57AC4C, 0x9B00DBD8))
    expected = [((high >> 5) * 2**26 + (low >> 6)) / 2**53 for high, low in words]
    assert numbers.tolist() == expected


def test_uniform_is_a_function_of_seed_and_position_alone() -> None:
    seeds = np.array([1, 2**64 - 1, 1, 5], np.uint64)
    positions = np.array([0, 9, 1, 2**40], np.int64)
    together = uniform(seeds, positions)
    alone = [uniform(seeds[i : i + 1], positions[i : i + 1])[0].tolist() for i in range(4)]
    assert together.tolist() == alone
    assert len({number for pair in alone for number in pair}) == 8


def test_uniform_is_spread_evenly_over_zero_to_one() -> None:
    numbers = uniform(np.full(50_000, 3, np.uint64), np.arange(50_000))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts, _ = np.histogram(numbers, bins=100, range=(0, 1))
    chi_square = float(((counts - 1000) ** 2 / 1000).sum())
    assert chi_square < 149  # 99 degrees of freedom: exceeded with probability 0.001


def test_derived_seeds_differ_by_every_argument() -> None:
    arguments = [(e, r, c) for e in (0, 1, -1, 2**63) for r in (0, 1, 2**33) for c in (0, 1, 7)]
    seeds = [derive_seed(*a) for a in arguments]
    assert len(set(seeds)) == len(arguments)
    assert all(0 <= s < 2**64 for s in seeds)
    assert seeds == [derive_seed(*a) for a in arguments]


def _words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint64)
