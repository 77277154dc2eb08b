"""Plans attention of rows with several query tokens that see a sliding window of their keys.

Both ends of what a token sees move from token to token, so these pieces take a mask, unlike those
of `attention_plan`; they are cut so that little is masked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.kernels.gather_index import gather_index
from tandem.kernels.pages import PageShape
from tandem.plan.binding import IntArray, LongArray
from tandem.plan.seen_keys import SeenKeys

TOKENS_PER_SPAN = 256


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """Consecutive tokens, and consecutive blocks of their row.

    Attributes:
        tokens: range of the batch's tokens.
        gather: int64 [2 * kv_heads * blocks]; K, then V.
        seen: of the span's keys; every token sees at least one.
    """

    tokens: slice
    gather: LongArray
    seen: SeenKeys


def window_spans(
    tokens: slice, seen: SeenKeys, table: IntArray, shape: PageShape, span_blocks: int
) -> list[WindowSpan]:
    """One row's spans; `seen` is of the row's tokens, and neither of its ends ever falls.

    A token may be in several, or in none if it sees nothing: results are to be merged.
    """
    size, spans = shape.block_size, list[WindowSpan]()
    for start in range(0, len(seen.end), TOKENS_PER_SPAN):
        part = seen.of(slice(start, start + TOKENS_PER_SPAN))
        for block in range(int(part.first[0]) // size, -(-int(part.end[-1]) // size), span_blocks):
            held = part.within(block * size, (block + span_blocks) * size)
            for run in _runs(held.end > held.first):
                own = held.of(run)
                low = int(own.first[0]) // size
                ids = table[low : -(-int(own.end[-1]) // size)]
                first = tokens.start + start + run.start
                spans.append(
                    WindowSpan(
                        slice(first, first + len(own.end)),
                        gather_index(ids[None], shape).reshape(-1),
                        SeenKeys(own.first - low * size, own.end - low * size),
                    )
                )
    return spans


def _runs(chosen: NDArray[np.bool_]) -> Iterator[slice]:
    """Ranges of consecutive true entries."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False]))))
    for start, end in edges.reshape(-1, 2):
        yield slice(int(start), int(end))
