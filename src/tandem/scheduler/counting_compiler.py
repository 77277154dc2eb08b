"""Step programs without arrays, for an executor that computes nothing (`simulator/`).

What such a sweep is, the scheduler decides as ever; what it computes is counted
(`counted_lanes.py`).
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tandem.cost.lane_work import LaneWork
from tandem.plan.binding import LongArray, SamplingRows
from tandem.plan.program import LaneShape, ProgramTemplate, StepProgram
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.counted_lanes import (
    CountedLanes,
    CountedRows,
    CountedSampling,
    RowCounter,
)
from tandem.scheduler.in_flight import Flight, RowsInFlight, SamplingInFlight, StepInFlight
from tandem.scheduler.row_set import RowSet, RowSets
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.step_compiler import MAIN, StepCompiler, cached_sampling, cached_sweep
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.scheduler.cohort import Cohort

_DEVICE, _HOST = Tier.DEVICE, Tier.HOST


@dataclass(frozen=True, slots=True)
class CountedProgram(StepProgram):
    """A sweep of a main lane, or its sampling.

    Attributes:
        work: of the lane of a sweep; None: the program samples.
        num_sampled: rows whose next token is sampled.
    """

    work: LaneWork | None = None
    num_sampled: int = 0


class CountingCompiler(StepCompiler):
    """Counts lanes over rows that each lie in one tier; builds all others, and all once some row's
    sampling needs its whole history. A sweep of one such lane is put together at once.

    Args:
        windows: of each layer of the model.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        rows: RowTable,
        flight: Flight,
        sequence_of: Callable[[int], Sequence],
        *,
        windows: tuple[int, ...],
    ) -> None:
        super().__init__(config, rows, flight, sequence_of)
        self._counter, self._sets = RowCounter(rows, windows), RowSets(rows)
        tokens_of = partial(_tokens_of, sequence_of)
        self._lanes = CountedLanes(rows, config.block_size, tokens_of, self._counter)
        self._counted_sampling = CountedSampling(rows, sequence_of)
        self._lone: dict[tuple[int, bool, bool, bool], ProgramTemplate] = {}

    def sweep(
        self,
        decode: LongArray,
        chunks: list[tuple[int, int]],
        starts: tuple[LongArray, ...],
        joins: "list[Cohort]",
        passes: int,
        *,
        ahead: bool,
    ) -> "tuple[list[StepProgram], list[Cohort]]":
        """See `StepCompiler`."""
        rows = decode
        if chunks:
            rows = np.concatenate([decode, np.array([row for row, _ in chunks], dtype=np.int64)])
        counted = None
        if not (starts or joins):
            counted = self._counter.count(rows, len(decode), [tokens for _, tokens in chunks])
        if counted is None:
            return super().sweep(decode, chunks, starts, joins, passes, ahead=ahead)
        return self._submit(self._sets.of(rows), counted), []

    def _sampled(self, rows: RowSet, logits_index: LongArray) -> SamplingRows:
        builder = self._sampling if self._rows.had_late else self._counted_sampling
        return builder.build(rows, logits_index)

    def _submit(self, rows: RowSet, counted: CountedRows) -> list[StepProgram]:
        """The programs, and what is recorded of them."""
        r, flight, after, work = self._rows, self._flight, counted.after, counted.work
        step = flight.new_step()
        r.submitted[rows.index] = after
        r.last_step[rows.index] = step
        record = StepInFlight(step, {MAIN: RowsInFlight(rows, after)}, due={("done", MAIN)})
        flight.steps[step] = record
        template = self._template(work, head=work.logits > 0)
        wait_s = self._config.max_join_wait_s
        programs: list[StepProgram] = [
            CountedProgram(step, template, max_join_wait_s=wait_s, work=work)
        ]
        if work.logits:
            whole = work.logits == len(rows)
            chosen = rows if whole else RowSet(r, rows.rows[counted.sampled])
            programs.append(self._sampling_of(record, chosen))
        return programs

    def _sampling_of(self, record: StepInFlight, rows: RowSet) -> CountedProgram:
        step = self._flight.new_step()
        self._flight.sampling[step, MAIN] = SamplingInFlight(record.step_id, MAIN, rows)
        record.due.add((f"tokens{MAIN}", step))
        rows.count_up(self._rows.pending)
        self._rows.on_device[rows.index] = True
        return CountedProgram(
            step,
            cached_sampling(1),
            sampling_lanes=(MAIN,),
            forward_step=record.step_id,
            num_sampled=len(rows),
        )

    def _template(self, work: LaneWork, *, head: bool) -> ProgramTemplate:
        layers = self._config.layers.of(work.tokens)
        device, host = work.appended[_DEVICE] > 0, work.appended[_HOST] > 0
        key = id(layers), device, host, head  # the configuration keeps them
        known = self._lone.get(key)
        if known is None:
            shape = LaneShape(device=device, host=host, head=head)
            known = cached_sweep(self._config.num_layers, (shape,), layers)
            self._lone[key] = known
        return known


def _tokens_of(sequence_of: Callable[[int], Sequence], row: int) -> "array[int]":
    return sequence_of(row).tokens
