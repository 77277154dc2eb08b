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
        output_tokens_per_s: of late, those of lines that still run included.
        remaining_s: at the pace of late; None while no line has been finished.
    """

    num_lines: int
    counts: Counts
    output_tokens_per_s: float = 0.0
    remaining_s: float | None = None


class Pace:
    """Rates over the last reports, by the job's own clock (`Counts.elapsed_s`)."""

    def __init__(self, num_lines: int, counts: Counts) -> None:
        self._num_lines = num_lines
        self._begun = counts
        self._samples = deque([(counts, 0)], _MAX_SAMPLES)

    def status(self, counts: Counts, num_running_tokens: int = 0) -> Status:
        """The job's status; what is told is remembered.

        Args:
            num_running_tokens: output tokens so far of lines that have no result yet.
        """
        since, num_tokens_then = self._samples[0]
        self._samples.append((counts, num_running_tokens))
        span_s = counts.elapsed_s - since.elapsed_s
        if span_s <= 0:
            return Status(self._num_lines, counts)
        num_tokens = counts.num_output_tokens + num_running_tokens
        num_tokens -= since.num_output_tokens + num_tokens_then
        rate = max(0, num_tokens) / span_s  # a line that fails takes its tokens with it
        remaining_s = self._by_tokens_s(counts, num_running_tokens, rate)
        if remaining_s is None:
            remaining_s = self._by_lines_s(counts, since)
        return Status(self._num_lines, counts, rate, remaining_s)

    def _by_tokens_s(self, counts: Counts, num_running_tokens: int, rate: float) -> float | None:
        """If lines to come have as many as those that are done, which needs one to be done."""
        if not counts.num_output_tokens or not rate:
            return None
        num_left = self._num_lines - counts.num_done
        num_tokens = num_left * counts.num_output_tokens / counts.num_done - num_running_tokens
        return max(0.0, num_tokens) / rate

    def _by_lines_s(self, counts: Counts, of_late: Counts) -> float | None:
        """At the pace of late, or where no line was finished then, of the whole run."""
        for since in (of_late, self._begun):
            num_done = counts.num_done - since.num_done
            if num_done:
                num_left = self._num_lines - counts.num_done
                return num_left * (counts.elapsed_s - since.elapsed_s) / num_done
        return None
