"""Which candidates there are: every number of streamed layers, and rows on a fixed grid.

The grid does not depend on the hardware, so that a larger machine's candidates are a smaller one's
and more; what just fits is added to it.
"""

from collections.abc import Iterator
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.footprint import MAX_COHORT_ROWS, Footprint
from tandem.planner.policies import Policy
from tandem.planner.question import MAX_ROWS, Question

_GRID_RATIO = 1.2
_LEAST_LAYERS = 6  # of a model whose cohorts are simulated in mid-sweep


def row_grid(limit: int) -> list[int]:
    """Numbers of rows up to `limit`, ever further apart, `limit` included."""
    grid: list[int] = []
    rows = 1.0
    while round(rows) < min(limit, MAX_ROWS):
        if not grid or round(rows) > grid[-1]:
            grid.append(round(rows))
        rows *= _GRID_RATIO
    return [*grid, limit] if limit > 0 else []


class Candidates:
    """Enumerates what fits."""

    def __init__(self, question: Question, footprint: Footprint) -> None:
        self._q, self._footprint = question, footprint

    def of(self, policy: Policy) -> Iterator[Candidate]:
        """Every candidate that keeps to the policy and to all capacities."""
        for streamed in self._streamed_counts(all_streamed=policy.all_streamed):
            for strategy in policy.strategies:
                for candidate in self._with(strategy, streamed, policy.all_on_host):
                    if policy.allows(candidate, self._q.model.num_layers):
                        yield candidate

    def _streamed_counts(self, *, all_streamed: bool) -> list[int]:
        """As few as fit, and more in growing steps, until more memory would hold no more rows."""
        most = self._q.model.num_layers // STREAM_SLOTS * STREAM_SLOTS
        least = most if all_streamed else 0
        fitting = [count for count in range(least, most + 1, STREAM_SLOTS) if self._has_room(count)]
        counts: list[int] = []
        index = 0
        while index < len(fitting):
            counts.append(fitting[index])
            if not self._more_rows_wanted(fitting[index]):
                break
            last = len(fitting) - 1
            index = min(index + 1 + len(counts) // 2, last) if index < last else last + 1
        return counts

    def _more_rows_wanted(self, streamed: int) -> bool:
        rows = self.most_on_device("gpu-only", streamed, 0) + 1
        return rows <= self._q.max_rows and self._q.prompts_keep_up(rows, rows)

    def _has_room(self, streamed: int) -> bool:
        left = self._footprint.device_kv_bytes("gpu-only", streamed, 1)
        return left >= 0 and self._footprint.host_kv_bytes(streamed) >= 0

    def _with(self, strategy: Strategy, streamed: int, all_on_host: bool) -> Iterator[Candidate]:
        if strategy == "gpu-only":
            most = self.most_on_device(strategy, streamed, 0)
            for rows in row_grid(most):
                yield Candidate(strategy, streamed, rows, 0)
            return
        if strategy == "rendezvous":
            if self._q.objective == "latency" or self._q.model.num_layers < _LEAST_LAYERS:
                return
            limit = min(self._most_hosted(streamed), MAX_COHORT_ROWS)
        else:
            limit = self._most_hosted(streamed)
        for hosted in row_grid(limit):
            device = 0 if all_on_host else self.most_on_device(strategy, streamed, hosted)
            found = {Candidate(strategy, streamed, device, hosted)}
            if strategy == "ride-along":
                found.add(Candidate(strategy, streamed, 0, hosted))
                if not device:
                    found.add(self.split(streamed, hosted))
            yield from filter(self._footprint.fits, sorted(found, key=_order))

    def split(self, streamed: int, rows: int) -> Candidate:
        """Rows that have as much of their KV on the accelerator as it holds."""
        whole = Candidate("ride-along", streamed, 0, rows)
        each = self._footprint.device_blocks(whole) // rows
        share = min(1.0, each / self._footprint.blocks_per_row)
        return replace(whole, device_share=share)

    def _most_hosted(self, streamed: int) -> int:
        """Rows that the host's memory holds, with what the accelerator's may add to it."""
        footprint = self._footprint
        left = footprint.host_kv_bytes(streamed)
        left += max(0, footprint.device_kv_bytes("ride-along", streamed, 1))
        return min(self._q.max_rows, left // footprint.block_bytes // footprint.blocks_per_row)

    def most_on_device(self, strategy: Strategy, streamed: int, hosted: int) -> int:
        """Most rows on the accelerator beside `hosted` rows on the host; 0 if none."""
        fits, low, high = self._footprint.fits, 0, self._q.max_rows - hosted
        while low < high:
            middle = (low + high + 1) // 2
            if fits(Candidate(strategy, streamed, middle, hosted)):
                low = middle
            else:
                high = middle - 1
        return low


def _order(candidate: Candidate) -> tuple[int, float]:
    return candidate.device_rows, candidate.device_share
