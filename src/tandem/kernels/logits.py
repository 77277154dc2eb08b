"""Changes to logits before a token is drawn: bans, penalties, bias."""

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.upload import upload
from tandem.plan.binding import LongArray, Penalties, SamplingRows


def needs_adjustment(rows: SamplingRows) -> bool:
    """True if `adjust_logits` would change anything."""
    return len(rows.banned) > 0 or len(rows.bias) > 0 or rows.penalties is not None


def adjust_logits(logits: Tensor, rows: SamplingRows) -> None:
    """Apply bans, then penalties, then bias to `logits [n, vocab]` float32, in place."""
    if len(rows.banned):
        logits[_pairs(rows.banned, logits)] = -torch.inf
    if rows.penalties is not None:
        _penalise(logits, rows.penalties)
    if len(rows.bias):
        values = upload(rows.bias_values, logits.device)
        logits.index_put_(_pairs(rows.bias, logits), values, accumulate=True)


def _penalise(logits: Tensor, penalties: Penalties) -> None:
    """Lower the logits of tokens that have been seen.

    Repetition divides positive logits and multiplies others, of prompt and output tokens alike;
    frequency (per occurrence) and presence (once) are subtracted, of output tokens.
    """
    seen = np.concatenate((penalties.prompt, penalties.output))
    if len(seen):
        # A token of both lists is written twice, with the same value, as both are read first.
        where = _pairs(seen, logits)
        before, factor = logits[where], upload(penalties.repetition, logits.device)[where[0]]
        logits[where] = torch.where(before > 0, before / factor, before * factor)
    if len(penalties.output):
        where = _pairs(penalties.output, logits)
        counts = upload(penalties.counts, logits.device)
        frequency = upload(penalties.frequency, logits.device)[where[0]]
        presence = upload(penalties.presence, logits.device)[where[0]]
        logits[where] -= frequency * counts + presence


def _pairs(pairs: LongArray, like: Tensor) -> tuple[Tensor, Tensor]:
    rows, tokens = upload(pairs, like.device).unbind(1)
    return rows, tokens
