"""How fast a job goes, and how long it will still take."""

from collections import deque
from dataclasses import dataclass

from tandem.jobs.counts import Counts

_MAX_SAMPLES = 60


@dataclass(frozen=True, slots=True)
class Status:
    """A job at a moment.

    Attributes:
        num_lines: of the input.
        output_tokens_per_s: of late.
        remaining_s: at the pace of late; None while it is not known.
    """

    num_lines: int
    counts: Counts
    output_tokens_per_s: float = 0.0
    remaining_s: float | None = None


class Pace:
    """Rates over the last reports, by the job's own clock (`Counts.elapsed_s`)."""

    def __init__(self, num_lines: int, counts: Counts) -> None:
        self._num_lines = num_lines
        self._samples = deque([counts], _MAX_SAMPLES)

    def status(self, counts: Counts) -> Status:
        """The job's status; counts are remembered."""
        first = self._samples[0]
        self._samples.append(counts)
        span_s = counts.elapsed_s - first.elapsed_s
        num_done = counts.num_done - first.num_done
        if span_s <= 0:
            return Status(self._num_lines, counts)
        tokens_per_s = (counts.num_output_tokens - first.num_output_tokens) / span_s
        num_left = self._num_lines - counts.num_done
        remaining_s = num_left * span_s / num_done if num_done else None
        return Status(self._num_lines, counts, tokens_per_s, remaining_s)
