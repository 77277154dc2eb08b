"""Filters on integer token weights and the draw itself.

A filter is a threshold: tokens as likely as the last one kept are kept too. So the kept set does
not depend on how ties are sorted, and no sort of the vocabulary is needed.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tandem.kernels.weights import ONE
from tandem.memory.workspace import SORTED_BYTES

GROUP = 256
"""Successive token ids that are drawn from as one, then singly: about the root of vocabularies."""

_FIRST_CANDIDATES = 1024  # tokens that nearly always hold the mass that top-p asks for


def filter_top_k(
    weights: Tensor,  # int64 [n, vocab]; in place
    logits: Tensor,  # [n, vocab] float32
    top_k: Tensor,  # int64 [n]; 0: off for this row
    max_k: int,  # largest of top_k
) -> None:
    """Clear the weights of tokens less likely than the k-th."""
    for rows in _sorted_at_once(weights):
        best = torch.topk(logits[rows], min(max_k, logits.shape[1]), dim=-1).values
        last = best.gather(1, (top_k[rows] - 1).clamp(0, best.shape[1] - 1)[:, None])
        last.masked_fill_((top_k[rows] <= 0)[:, None], -torch.inf)
        weights[rows].masked_fill_(logits[rows] < last, 0)


def filter_top_p(weights: Tensor, top_p: Tensor) -> None:
    """Keep the smallest set of likeliest tokens that holds the share `top_p` of the whole.

    Args:
        weights: int64 [n, vocab]; in place.
        top_p: float32 [n]; 1: off for this row.
    """
    for rows in _sorted_at_once(weights):
        _keep_mass(weights[rows], top_p[rows])


def _keep_mass(weights: Tensor, top_p: Tensor) -> None:
    needed = (weights.sum(-1).double() * top_p.double()).ceil_().long()[:, None]
    vocab = weights.shape[1]
    # Sums are exact, so how many candidates are looked at does not change the result.
    count = min(_FIRST_CANDIDATES, vocab) if weights.device.type == "cpu" else vocab
    while True:
        best = torch.topk(weights, count, dim=-1).values
        total = best.cumsum(-1)
        if count == vocab or bool((total[:, -1:] >= needed).all()):
            break
        count = min(count * 8, vocab)
    before = total - best
    kept = (before < needed).sum(-1, keepdim=True)
    last = best.gather(1, (kept - 1).clamp_(min=0))
    weights.masked_fill_(weights < last, 0)


def _sorted_at_once(weights: Tensor) -> Iterator[slice]:
    """Some rows after the other: a sort takes several arrays as large as what it sorts."""
    count, vocab = weights.shape
    most = max(1, SORTED_BYTES[weights.device.type] // (weights.element_size() * vocab))
    for first in range(0, count, most):
        yield slice(first, first + most)


def filter_min_p(weights: Tensor, min_p: Tensor) -> None:
    """Keep tokens at least `min_p` times as likely as the likeliest.

    Args:
        weights: int64 [n, vocab]; in place.
        min_p: float32 [n]; 0: off for this row.
    """
    least = (min_p.double() * ONE).ceil_().long()[:, None]
    weights.masked_fill_(weights < least, 0)


def draw_tokens(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw a group of `GROUP` successive ids, then a token of it, each by inverting a cumulative
    distribution in the order of ids. In one draw over all ids the last bits of the logits, which
    depend on the batch, would move a token's bounds by what they do to all before it (ADR 0060).

    Args:
        weights: int64 [n, vocab].
        uniform: float64 [n, 2] in [0, 1): for the token within its group, and for the group.

    Returns:
        int64 [n]; of a group the first token whose cumulative weight exceeds that share of the
        group's, and so for groups.
    """
    cumulative = weights.cumsum(-1)
    ends = torch.cat((cumulative[:, GROUP - 1 : -1 : GROUP], cumulative[:, -1:]), -1)
    bounds = torch.nn.functional.pad(ends, (1, 0))
    group = _first_above(ends, _share(uniform[:, 1:], bounds[:, :1], ends[:, -1:]))
    start, end = bounds.gather(1, group), ends.gather(1, group)
    return _first_above(cumulative, _share(uniform[:, :1], start, end))[:, 0]


def _share(uniform: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """The place that lies so far from start to end; all [n, 1]."""
    size = end - start
    # A size above 2**53 rounds as float64, perhaps up to itself.
    return start + torch.minimum((uniform * size.double()).long(), size - 1)


def _first_above(cumulative: Tensor, target: Tensor) -> Tensor:
    found = torch.searchsorted(cumulative, target, right=True)
    return found.clamp_(max=cumulative.shape[1] - 1)
