"""Who of those that wait gets the places that are free."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby

from tandem.scheduler.blocks.places import BlockPlaces
from tandem.scheduler.sequence import Sequence

_MOST_REFUSED = 32
"""That are looked at in one turn: looking takes time, too."""


def fill_places(
    places: BlockPlaces, waiting: Iterable[Sequence], most_tokens: int | None
) -> Iterator[tuple[Sequence, int]]:
    """Sequences that enter now, and their rows.

    Of equal priority, those with most tokens to come go first, so that places end together when
    the job does; but not where they would keep others out of places that short ones could fill.
    Then short ones enter.

    Args:
        most_tokens: of their prompts, but for a single longer prompt; None: any.
    """
    tokens = refused = 0
    for _, group in groupby(sorted(waiting, key=_longest_first), key=_priority):
        left = deque(group)
        smallest = min(left, key=lambda sequence: sequence.limit)
        least = places.blocks_of(smallest)
        while left and places.num_open(smallest):
            row = _enter(places, left[0])
            fills = places.num_open(smallest) >= min(places.num_free, len(left) - 1)
            if row is not None and (fills or places.blocks_of(left[0]) <= least):
                chosen = left.popleft()
            else:
                if row is not None:
                    places.leave(row)
                chosen = left.pop()
                row = _enter(places, chosen)
            if row is None:
                refused += 1
                if refused > _MOST_REFUSED:
                    return
                continue
            if tokens and most_tokens is not None and tokens + chosen.num_prompt > most_tokens:
                places.leave(row)
                return
            tokens += chosen.num_prompt
            yield chosen, row


def _enter(places: BlockPlaces, sequence: Sequence) -> int | None:
    place = places.find(sequence)
    return None if place is None else places.enter(sequence, place)


def _priority(sequence: Sequence) -> int:
    return sequence.rank[0]


def _longest_first(sequence: Sequence) -> tuple[int, int, int]:
    priority, arrival = sequence.rank
    return priority, sequence.num_prompt - sequence.limit, arrival
