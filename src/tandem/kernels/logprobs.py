"""Log-probabilities of sampled tokens and of the likeliest alternatives."""

from typing import NamedTuple

import torch
from torch import Tensor

from tandem.kernels.weights import log_total, token_weights


class RowLogprobs(NamedTuple):
    """Natural logs of probabilities, of n rows.

    Attributes:
        sampled: float32 [n]; of the sampled tokens.
        top_token_ids, top: [n, k] int64 and float32; the likeliest first, equal ones by id.
    """

    sampled: Tensor
    top_token_ids: Tensor
    top: Tensor


def row_logprobs(
    logits: Tensor,  # [n, vocab] float32
    token_ids: Tensor,  # int64 [n]; sampled
    count: int,
) -> RowLogprobs:
    """Log-probabilities of the sampled tokens and of `count` others (at most the vocabulary)."""
    normaliser = _log_normaliser(logits)[:, None]
    best = _likeliest(logits, min(count, logits.shape[1]))
    wanted = torch.cat((token_ids[:, None], best), 1)
    values = (logits.gather(1, wanted).double() - normaliser).float()
    return RowLogprobs(values[:, 0], best, values[:, 1:])


def _log_normaliser(logits: Tensor) -> Tensor:
    """Natural log of each row's sum of exponentials; float64 [n]."""
    peak = logits.amax(-1)
    return peak.double() + log_total(token_weights(logits, peak, None))


def _likeliest(logits: Tensor, count: int) -> Tensor:
    """Ids of the `count` largest logits, equal ones by id; int64 [n, count]."""
    vocab = logits.shape[1]
    if count == 0:
        return logits.new_empty((len(logits), 0), dtype=torch.int64)
    # One integer that orders by logit, then by descending id: equal logits are common in bf16.
    bits = (logits + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (ordered.long() << 32) + torch.arange(vocab - 1, -1, -1, device=logits.device)
    best = torch.topk(keys, count, dim=-1).values
    return vocab - 1 - (best & 0xFFFFFFFF)
