"""Which host rows go to which sub-batch (NEO, section 3.2, steps 4 and 5)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tandem.cost.neo.pipeline import PipelinedLayer, SubBatchTimes

LinearTime = Callable[[int], float]


class Draft(NamedTuple):
    """Two sub-batches that are being filled.

    Attributes:
        first_tokens, second_tokens: query tokens in the linear stages of batch 0 and batch 1.
        accelerator_attention_s: per layer, of batch 0.
        first_host_s, second_host_s: per layer, host attention of either.
    """

    first_tokens: int
    second_tokens: int = 0
    accelerator_attention_s: float = 0.0
    first_host_s: float = 0.0
    second_host_s: float = 0.0

    def layer(self, linear_s: LinearTime, launch_s: float = 0.0) -> PipelinedLayer:
        """Times of the draft; `linear_s` of some tokens is a measured staircase, 0 for none."""
        first = SubBatchTimes(
            linear_s(self.first_tokens), self.accelerator_attention_s, self.first_host_s
        )
        second = SubBatchTimes(linear_s(self.second_tokens), 0.0, self.second_host_s)
        return PipelinedLayer(first, second, launch_s)


class Placing(NamedTuple):
    """What became of each row: 0 or 1 for its batch, None if it waits for the next step."""

    draft: Draft
    batches: tuple[int | None, ...]


def place_host_rows(
    draft: Draft, host_attention_s: Sequence[float], linear_s: LinearTime
) -> Placing:
    """Step 4: each row in order to batch 1, else to batch 0, while both inequalities hold.

    Args:
        host_attention_s: per layer, of each row.
    """
    # `PipelinedLayer.hides_host` of the draft with a row more, in sums: a scheduler asks in every
    # step for hundreds of rows, of which most change nothing
    first, second = draft.first_tokens, draft.second_tokens
    first_host_s, second_host_s = draft.first_host_s, draft.second_host_s
    attention_s = draft.accelerator_attention_s
    first_s, more_first_s = linear_s(first), linear_s(first + 1)
    second_s, more_second_s = linear_s(second), linear_s(second + 1)
    batches: list[int | None] = []
    waiting, looks_at = 0, 1

    def batch_of(time_s: float) -> int | None:
        if (
            first_s - (second_host_s + time_s) >= 0
            and more_second_s + attention_s - first_host_s >= 0
        ):
            return 1
        if more_first_s - second_host_s >= 0:
            return 0 if second_s + attention_s - (first_host_s + time_s) >= 0 else None
        return None

    for at, time_s in enumerate(host_attention_s):
        batch = batch_of(time_s)
        batches.append(batch)
        if batch == 1:
            second, second_host_s = second + 1, second_host_s + time_s
            second_s, more_second_s = more_second_s, linear_s(second + 1)
        elif batch == 0:
            first, first_host_s = first + 1, first_host_s + time_s
            first_s, more_first_s = more_first_s, linear_s(first + 1)
        else:
            waiting += 1
            if waiting == looks_at:  # seldom: to find the shortest of the others takes as long
                looks_at *= 2
                if batch_of(min(host_attention_s[at:])) is None:
                    break  # nor do any of those that take longer
    batches += [None] * (len(host_attention_s) - len(batches))
    placed = Draft(first, second, attention_s, first_host_s, second_host_s)
    return Placing(placed, tuple(batches))


def drop_host_prefills(draft: Draft, prefill_tokens: Sequence[int], linear_s: LinearTime) -> int:
    """Step 5: how many prefills whose KV would go to the host to take out again, last first.

    One is taken out while both inequalities still hold without it: prefills lengthen the window
    that hides the host's attention.

    Args:
        prefill_tokens: of those prefills, in the order in which they were added to batch 0.
    """
    dropped = 0
    for tokens in reversed(prefill_tokens):
        tried = draft._replace(first_tokens=draft.first_tokens - tokens)
        if not tried.layer(linear_s).hides_host:
            break
        draft, dropped = tried, dropped + 1
    return dropped
