"""From logits to tokens: the same token for the same row, alone or in any batch, on any device.

Order of operations per row: log-probabilities are of the logits as they come; then bans,
penalties, bias, temperature, top-k, top-p, min-p, and a draw over the remaining tokens in the
order of their ids. Row results are combined from elementwise operations, maxima and sums of
integers only (see `weights`), none of which depends on the other rows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.draw import draw_tokens, filter_min_p, filter_top_k, filter_top_p
from tandem.kernels.logits import adjust_logits, needs_adjustment
from tandem.kernels.logprobs import RowLogprobs, row_logprobs
from tandem.kernels.upload import upload
from tandem.kernels.weights import token_weights
from tandem.memory.workspace import SAMPLING_CHUNK_BYTES
from tandem.plan.binding import LongArray, SamplingRows


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Tokens chosen for n rows, on the logits' device.

    Attributes:
        token_ids: int64 [n]; always inside the vocabulary.
        valid: bool [n]; False where the row's logits had nan, +inf or nothing above -inf, so that
            its token means nothing.
        logprobs: float32 [n] of the sampled tokens, or None if not asked for.
        top_token_ids, top_logprobs: [n, k] int64 and float32, likeliest first, equal ones by id;
            None if no alternatives were asked for.
    """

    token_ids: Tensor
    valid: Tensor
    logprobs: Tensor | None
    top_token_ids: Tensor | None
    top_logprobs: Tensor | None


@dataclass(frozen=True, slots=True)
class Likeliest:
    """Of each row of logits, what a greedy row of `sample` gets; in memory of somebody's.

    Attributes:
        token_ids: int64 [n_logits]. valid: bool [n_logits].
    """

    token_ids: Tensor
    valid: Tensor

    def find(self, logits: Tensor) -> None:
        """Of logits [n_logits, vocab], into this memory; asks the host for nothing."""
        peak, token_ids = logits.max(-1)
        self.token_ids.copy_(token_ids)
        self.valid.copy_(torch.isfinite(peak))

    def forget(self) -> None:
        """Hold what no logits have: no token, and none that is valid."""
        self.token_ids.fill_(-1)
        self.valid.fill_(False)

    def equals(self, other: "Likeliest") -> bool:
        """Whether both hold the same; waits for the device."""
        same = torch.equal(self.token_ids, other.token_ids)
        return same and torch.equal(self.valid, other.valid)

    def first(self, rows: int) -> "Likeliest":
        """Of the first rows, where they lie."""
        return Likeliest(self.token_ids[:rows], self.valid[:rows])

    def of(self, rows: SamplingRows) -> SampledTokens:
        """Of rows that are `chosen_by_likeliest`, in memory of their own."""
        index = upload(rows.logits_index, self.token_ids.device)
        chosen = self.token_ids.index_select(0, index), self.valid.index_select(0, index)
        return SampledTokens(*chosen, None, None, None)


def chosen_by_likeliest(rows: SamplingRows) -> bool:
    """Whether nothing but the largest of each row's logits decides, and nothing else is asked."""
    return rows.greedy and rows.logprobs is None and not needs_adjustment(rows)


def sample(
    logits: Tensor,  # [n_logits, vocab]; any floating type, not changed
    rows: SamplingRows,
) -> SampledTokens:
    """Choose one token per row of `rows`. Equal logits of greedy rows: the lowest id."""
    raw = _select_rows(logits, rows.logits_index)
    adjusted = raw
    if needs_adjustment(rows):
        adjusted = raw.clone()
        adjust_logits(adjusted, rows)
    peak, token_ids = _likeliest(adjusted)
    for chunk in _random_chunks(rows, logits):
        token_ids[upload(chunk, logits.device)] = _draw_rows(adjusted, peak, rows, chunk)
    valid = torch.isfinite(peak)
    if rows.logprobs is None:
        return SampledTokens(token_ids, valid, None, None, None)
    found = _logprobs(raw, token_ids, rows.logprobs)
    if rows.logprobs == 0:
        return SampledTokens(token_ids, valid, found.sampled, None, None)
    return SampledTokens(token_ids, valid, found.sampled, found.top_token_ids, found.top)


def _likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's largest logit, nan if there is one, and the lowest id that has it."""
    if logits.device.type != "cpu":
        return logits.max(-1)
    # torch's search for a maximum's place is not vectorized: ten times numpy's time
    token_ids = torch.from_numpy(logits.numpy().argmax(-1))
    return logits.gather(-1, token_ids[:, None]).squeeze(-1), token_ids


def _select_rows(logits: Tensor, index: LongArray) -> Tensor:
    if len(index) == logits.shape[0] and np.array_equal(index, np.arange(len(index))):
        return logits.float()
    return logits.index_select(0, upload(index, logits.device)).float()


def _random_chunks(rows: SamplingRows, logits: Tensor) -> list[LongArray]:
    """Rows with a temperature, a bounded number at a time."""
    if rows.greedy:
        return []
    random = np.flatnonzero(rows.temperature > 0)
    step = _chunk_rows(logits)
    return [random[i : i + step] for i in range(0, len(random), step)]


def _chunk_rows(logits: Tensor) -> int:
    return max(1, SAMPLING_CHUNK_BYTES[logits.device.type] // (8 * logits.shape[1]))


def _draw_rows(adjusted: Tensor, peak: Tensor, rows: SamplingRows, chunk: LongArray) -> Tensor:
    whole = len(chunk) == len(adjusted)
    index = upload(chunk, adjusted.device)
    logits = adjusted if whole else adjusted.index_select(0, index)
    peaks = peak if whole else peak.index_select(0, index)
    top_k, top_p, min_p = rows.top_k[chunk].astype(np.int64), rows.top_p[chunk], rows.min_p[chunk]
    weights = token_weights(logits, peaks, upload(rows.temperature[chunk], logits.device))
    if (top_k > 0).any():
        filter_top_k(weights, logits, upload(top_k, logits.device), int(top_k.max()))
    if (top_p < 1).any():
        filter_top_p(weights, upload(top_p, logits.device))
    if (min_p > 0).any():
        filter_min_p(weights, upload(min_p, logits.device))
    return draw_tokens(weights, upload(rows.numbers.of(chunk), logits.device))


def _logprobs(logits: Tensor, token_ids: Tensor, count: int) -> RowLogprobs:
    """A bounded number of rows at a time: they take 64-bit temporaries."""
    step = _chunk_rows(logits)
    chunks = zip(logits.split(step), token_ids.split(step), strict=True)
    parts = [row_logprobs(part, ids, count) for part, ids in chunks]
    return RowLogprobs(*(torch.cat(column) for column in zip(*parts, strict=True)))
