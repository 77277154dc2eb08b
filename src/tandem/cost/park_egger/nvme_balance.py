"""Shares of several NVMe drives that read at the same time (Park and Egger, equations 2 to 4).

Equation 3 is printed as `w = (1 - t_avg / t) alpha`, which gives the slower drive more; the sign is
turned here.
"""

from collections.abc import Callable, Sequence

Shares = tuple[float, ...]


def rebalance(shares: Sequence[float], times_s: Sequence[float], alpha: float) -> Shares:
    """One step towards equal times: `s (1 + alpha (t_avg / t - 1))`, renormalised to sum 1.

    Args:
        shares: of the bytes, one per drive.
        times_s: what each drive needed for its share while all were reading.
        alpha: how much of the whole correction is applied, above 0 and at most 1.

    Raises:
        ValueError: lengths differ, a time is not above 0, or alpha is out of range.
    """
    if len(shares) != len(times_s) or min(times_s) <= 0 or not 0 < alpha <= 1:
        raise ValueError(f"cannot balance {shares} by {times_s} with alpha {alpha}")
    mean_s = sum(times_s) / len(times_s)
    raw = [s * (1 + alpha * (mean_s / t - 1)) for s, t in zip(shares, times_s, strict=True)]
    total = sum(raw)
    return tuple(share / total for share in raw)


def balance(
    count: int,
    measure: Callable[[Shares], Sequence[float]],
    *,
    alpha: float = 0.5,
    rounds: int = 10,
) -> Shares:
    """Shares of `count` drives after `rounds` simultaneous measurements; equal ones at first."""
    shares: Shares = (1 / count,) * count
    for _ in range(rounds):
        shares = rebalance(shares, measure(shares), alpha)
    return shares
