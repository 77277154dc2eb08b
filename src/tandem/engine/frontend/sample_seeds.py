"""Seeds of several samples of one prompt."""

_MASK = 2**64 - 1


def sample_seed(seed: int | None, sample: int) -> int | None:
    """The seed of the `sample`-th sample: the first has the request's own; None stays None.

    Later ones are mixed (splitmix64), so that neighbouring seeds do not share samples.
    """
    if seed is None or sample == 0:
        return seed
    z = (seed + sample * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
