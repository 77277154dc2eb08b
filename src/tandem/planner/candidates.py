"""Which candidates there are: numbers of layers elsewhere, and rows on a fixed grid.

The grid does not depend on the hardware, so that a larger machine's candidates are a smaller one's
and more; what just fits is added to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate, Strategy, candidate_of
from tandem.planner.elsewhere import Elsewhere
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
        for elsewhere in self._elsewheres():
            for strategy in policy.strategies:
                for candidate in self._with(strategy, elsewhere, policy.all_on_host):
                    if policy.allows(candidate, self._q.model.num_layers):
                        yield candidate

    def _elsewheres(self) -> Iterator[Elsewhere]:
        """What may be elsewhere: nothing is, some or all layers are streamed, or some are on the
        CPU; of streamed ones, none is lent to it yet.
        """
        layers = self._q.model.num_layers
        even = range(0, layers // STREAM_SLOTS * STREAM_SLOTS + 1, STREAM_SLOTS)
        streamed = self._growing([Elsewhere(count) for count in even], 2)
        yield from streamed
        every = Elsewhere(even[-1])
        if every not in streamed and self._has_room(every):
            yield every
        if self._q.host_only or streamed == [Elsewhere()]:
            return
        for how in ("cpu", "cpu-mlp"):
            yield from self._growing(
                [Elsewhere(0, count, how) for count in range(1, layers + 1)], 1
            )

    def _growing(self, every: Sequence[Elsewhere], slowness: int) -> list[Elsewhere]:
        """As few as fit, and more in growing steps, until more memory would hold no more rows."""
        fitting = list(filter(self._has_room, every))
        found: list[Elsewhere] = []
        index = 0
        while index < len(fitting):
            found.append(fitting[index])
            if not self._more_rows_wanted(fitting[index]):
                break
            last = len(fitting) - 1
            step = 1 + len(found) // slowness
            index = min(index + step, last) if index < last else last + 1
        return found

    def _more_rows_wanted(self, elsewhere: Elsewhere) -> bool:
        rows = self.most_on_device("gpu-only", elsewhere, 0) + 1
        return rows <= self._q.max_rows and self._q.prompts_keep_up(rows, rows)

    def _has_room(self, elsewhere: Elsewhere) -> bool:
        left = self._footprint.device_kv_bytes("gpu-only", elsewhere, 1)
        return left >= 0 and self._footprint.host_kv_bytes(elsewhere) >= 0

    def _with(
        self, strategy: Strategy, elsewhere: Elsewhere, all_on_host: bool
    ) -> Iterator[Candidate]:
        if strategy == "gpu-only":
            most = self.most_on_device(strategy, elsewhere, 0)
            for rows in _thinned(row_grid(most), elsewhere):
                yield candidate_of(strategy, elsewhere, rows, 0)
            return
        limit = self._most_hosted(elsewhere)
        if strategy == "rendezvous":
            short = self._q.model.num_layers < _LEAST_LAYERS
            if self._q.objective == "latency" or short or elsewhere.on_cpu:
                return
            limit = min(limit, MAX_COHORT_ROWS)
        for hosted in _thinned(row_grid(limit), elsewhere):
            device = 0 if all_on_host else self.most_on_device(strategy, elsewhere, hosted)
            found = {candidate_of(strategy, elsewhere, device, hosted)}
            if strategy == "ride-along":
                found.add(candidate_of(strategy, elsewhere, 0, hosted))
                if not device:
                    found.add(self.split(elsewhere, hosted))
            yield from filter(self._footprint.fits, sorted(found, key=_order))

    def split(self, elsewhere: Elsewhere, rows: int) -> Candidate:
        """Rows that have as much of their KV on the accelerator as it holds."""
        whole = candidate_of("ride-along", elsewhere, 0, rows)
        each = self._footprint.device_blocks(whole) // rows
        share = min(1.0, each / self._footprint.blocks_per_row)
        return replace(whole, device_share=share)

    def _most_hosted(self, elsewhere: Elsewhere) -> int:
        """Rows that the host's memory holds, with what the accelerator's may add to it."""
        footprint = self._footprint
        left = footprint.host_kv_bytes(elsewhere)
        left += max(0, footprint.device_kv_bytes("ride-along", elsewhere, 1))
        return min(self._q.max_rows, left // footprint.block_bytes // footprint.blocks_per_row)

    def most_on_device(self, strategy: Strategy, elsewhere: Elsewhere, hosted: int) -> int:
        """Most rows on the accelerator beside `hosted` rows on the host; 0 if none."""
        fits, low, high = self._footprint.fits, 0, self._q.max_rows - hosted
        while low < high:
            middle = (low + high + 1) // 2
            if fits(candidate_of(strategy, elsewhere, middle, hosted)):
                low = middle
            else:
                high = middle - 1
        return low


def _thinned(grid: list[int], elsewhere: Elsewhere) -> list[int]:
    """Every second number, and the last one, where the CPU always computes: small moves follow."""
    return grid if not elsewhere.on_cpu else [*grid[:-1:2], *grid[-1:]]


def _order(candidate: Candidate) -> tuple[int, float]:
    return candidate.device_rows, candidate.device_share
