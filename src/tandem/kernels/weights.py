"""Probabilities as integers, so that their sums are exact.

A token's *weight* is its probability relative to the likeliest token's, in units of 2**-42,
rounded down. Sums of integers do not depend on the order of addition, hence not on the batch, the
number of threads or the device: the same logits give the same token everywhere. Tokens over 2**42
times less likely than the likeliest (29 nats) have weight 0. Sums fit for vocabularies below 2**21.
"""

import torch
from torch import Tensor

ONE = 1 << 42  # the likeliest token's weight


def token_weights(
    logits: Tensor,  # [n, vocab] float32; -inf allowed, but not in the whole row
    peak: Tensor,  # [n] float32; each row's maximum
    temperature: Tensor | None,  # [n] float32, above 0; None: 1
) -> Tensor:
    """Integer weights of exp((logits - peak) / temperature); int64 [n, vocab], at most `ONE`."""
    relative = logits.double().sub_(peak.double()[:, None])
    if temperature is not None:
        relative.div_(temperature.double()[:, None])
    return relative.exp_().mul_(ONE).long()


def log_total(weights: Tensor) -> Tensor:
    """Natural log of the sum of each row's weights in units of `ONE`; [n, vocab] -> float64 [n]."""
    return torch.log(weights.sum(-1).double() / ONE)
