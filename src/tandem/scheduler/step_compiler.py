"""Compile a proposal whose blocks are allocated to step programs, and record them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import IntArray, LongArray, SamplingRows
from tandem.plan.interposition import plan_visits
from tandem.plan.program import LaneShape, LaneSlot, PageTransfer, ProgramTemplate, StepProgram
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sampling_template, sweep_template, transfer_template
from tandem.plan.validator import validate
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.in_flight import (
    Flight,
    LateRows,
    MoveInFlight,
    RowsInFlight,
    SamplingInFlight,
    StepInFlight,
)
from tandem.scheduler.lane_builder import LaneBuilder
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sampling_builder import SamplingBuilder
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.steady_lane import BuiltLane
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.scheduler.cohort import Cohort

MAIN = 0
_TRANSFERS_PER_STEP = 4096
_MOST_TEMPLATES = 4096


@lru_cache(maxsize=4096)
def cached_sweep(
    num_layers: int, lanes: tuple[LaneShape, ...], layers: SweepLayers
) -> ProgramTemplate:
    """A validated sweep template; shapes recur, so each is built once."""
    template = sweep_template(num_layers, lanes, layers)
    validate(template)
    return template


@lru_cache(maxsize=64)
def cached_transfer(sources: tuple[Tier, ...]) -> ProgramTemplate:
    """A validated template of page copies."""
    template = transfer_template(sources)
    validate(template)
    return template


@lru_cache(maxsize=64)
def cached_sampling(num_lanes: int) -> ProgramTemplate:
    """A validated sampling template."""
    template = sampling_template(num_lanes)
    validate(template)
    return template


@lru_cache(maxsize=16)
def _one_lane(*, suspends: bool, device: bool, host: bool, head: bool) -> tuple[LaneShape]:
    """A lane that enters at the embedding: the same object for equal ones."""
    return (LaneShape(suspends=suspends, device=device, host=host, head=head),)


class _Visits(NamedTuple):
    """Arguments of `plan_visits`."""

    cursor: int
    num_layers: int
    passes: int
    entered: bool


@lru_cache(maxsize=4096)
def _visiting(
    visits: _Visits, first: int, before: int | None, *, device: bool, guarded: bool
) -> tuple[LaneShape, ...]:
    """A lane for each layer that a cohort may leave behind in a sweep.

    Args:
        first: number of the first lane. before: the one with which it enters in this sweep.
    """
    cursor, num_layers, passes, entered = visits
    planned = plan_visits(cursor, num_layers, passes, entered=entered)
    return tuple(
        LaneShape(
            cursor=visit.layer,
            suspends=True,
            device=device,
            host=True,
            guarded=guarded,
            beside=None if visit.at == visit.layer else visit.at,
            after=first + number - 1 if number else before,
        )
        for number, visit in enumerate(planned)
    )


@dataclass(slots=True)
class _Sweep:
    """A sweep being put together.

    Attributes:
        shapes: of its lanes, in parts that recur.
        entering: lanes with which cohorts enter, by cohort.
    """

    record: StepInFlight
    shapes: list[tuple[LaneShape, ...]] = field(default_factory=lambda: [])
    slots: list[LaneSlot] = field(default_factory=lambda: [])
    sampled: dict[int, RowSet] = field(default_factory=lambda: {})
    entering: dict[int, int] = field(default_factory=lambda: {})

    def add(self, shapes: tuple[LaneShape, ...], slots: tuple[LaneSlot, ...]) -> None:
        """Lanes that follow each other."""
        self.shapes.append(shapes)
        self.slots += slots


class _Sampled(NamedTuple):
    """Rows of a lane to be sampled, and where their logits are: int64 [rows]."""

    lane: int
    rows: RowSet
    logits_index: LongArray


class StepCompiler:
    """Owns step ids and cohort ids; updates the row table's counts as it submits."""

    def __init__(
        self,
        config: SchedulerConfig,
        rows: RowTable,
        flight: Flight,
        sequence_of: Callable[[int], Sequence],
    ) -> None:
        self._config = config
        self._rows = rows
        self._flight = flight
        self._lanes = LaneBuilder(rows, config.block_size, lambda row: sequence_of(row).tokens)
        self._sampling = SamplingBuilder(rows, sequence_of)
        self._cohort_ids = itertools.count(1)
        # by parts; with them, the objects of whose ids keys consist
        self._templates: dict[tuple[int, ...], tuple[ProgramTemplate, object, object]] = {}
        self._stops = config.cohort_layers

    # --- forward ----------------------------------------------------------------------------------

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
        """The forward program, the sampling program if any row reaches its end, new cohorts.

        Args:
            passes: most passes of its own that each cohort may have.
            ahead: cohorts that start join before their last joins are decided.
        """
        sweep = _Sweep(StepInFlight(self._flight.new_step()))
        has_main = bool(len(decode) or chunks)
        if has_main:
            self._add_main(sweep, self._lanes.main(decode, chunks))
        most_visits = 1
        for cohort in joins:
            visits = self._visit(sweep, cohort, passes, entered=False)
            most_visits = max(most_visits, visits)
        started = [self._add_start(sweep, rows, ahead=ahead) for rows in starts]
        for cohort in started:
            visits = self._visit(sweep, cohort, passes, entered=True)
            most_visits = max(most_visits, visits)
        template = self._template_of(sweep)
        # the accelerator waits no longer for a cohort, whatever the number of its passes
        wait_s = self._config.max_join_wait_s / most_visits if has_main else None
        forward = StepProgram(
            sweep.record.step_id, template, tuple(sweep.slots), max_join_wait_s=wait_s
        )
        self._flight.steps[sweep.record.step_id] = sweep.record
        programs = [forward]
        sampling = self._sample_sweep(sweep)
        if sampling is not None:
            programs.append(sampling)
        if not sweep.record.due:
            del self._flight.steps[sweep.record.step_id]
        return programs, started

    def _add_main(self, sweep: _Sweep, built: BuiltLane) -> None:
        binding, most = built.binding, self._config.max_num_batched_tokens
        assert binding.num_tokens <= most, f"{binding.num_tokens} tokens in a step of {most}"
        shapes = _one_lane(
            suspends=False,
            device=binding.has_keys(Tier.DEVICE),
            host=binding.has_keys(Tier.HOST),
            head=len(built.sampled) > 0,
        )
        self._submit_rows(sweep, built)
        sweep.add(shapes, (LaneSlot(binding),))
        sweep.sampled[MAIN] = built.sampled
        sweep.record.lanes[MAIN] = RowsInFlight(built.rows, built.after)
        sweep.record.due.add(("done", MAIN))

    def _add_start(self, sweep: _Sweep, rows: LongArray, *, ahead: bool) -> "Cohort":
        built = self._lanes.cohort(rows)
        self._submit_rows(sweep, built)
        cohort_id = next(self._cohort_ids)
        self._rows.cohort[rows] = cohort_id
        slot = LaneSlot(built.binding, cohort_id, 0)
        has_device = built.binding.has_keys(Tier.DEVICE)
        sweep.entering[cohort_id] = len(sweep.slots)
        sweep.add(_one_lane(suspends=True, device=has_device, host=True, head=True), (slot,))
        from tandem.scheduler.cohort import Cohort

        return Cohort(cohort_id, built.rows, slot, has_device, self._stops, ahead)

    def _visit(self, sweep: _Sweep, cohort: "Cohort", passes: int, *, entered: bool) -> int:
        """A cohort's part in a sweep, a lane for each layer that it may leave behind: how many
        there are.
        """
        assert cohort.cursor is not None
        # without others the sweep waits for it, unless what it follows may be refused
        guarded = MAIN in sweep.record.lanes or cohort.undecided > 0
        first, before = len(sweep.slots), sweep.entering.get(cohort.cohort_id)
        visits = _Visits(cohort.cursor, self._config.num_layers, passes, entered)
        shapes = _visiting(visits, first, before, device=cohort.has_device, guarded=guarded)
        if shapes:
            self._add_visits(sweep, cohort, shapes)
        return len(shapes)

    def _add_visits(self, sweep: _Sweep, cohort: "Cohort", shapes: tuple[LaneShape, ...]) -> None:
        assert cohort.rows.alive() is None, f"a member has left cohort {cohort.cohort_id}"
        self._rows.last_step[cohort.rows.index] = sweep.record.step_id
        binding, name, attention = cohort.slot.binding, cohort.cohort_id, cohort.attention
        lanes = range(len(sweep.slots), len(sweep.slots) + len(shapes))
        signals = range(attention, attention + len(shapes))
        sweep.add(shapes, tuple([LaneSlot(binding, name, signal) for signal in signals]))
        sweep.record.cohorts.update(dict.fromkeys(lanes, name))
        sweep.record.due.add(("advanced", lanes[-1]))  # its joins are decided in their order
        cohort.submit(len(shapes))
        if cohort.cursor is None:
            self._complete(sweep, cohort.rows, lanes[-1])
            cohort.last = sweep.record.step_id, lanes[-1]

    def _complete(self, sweep: _Sweep, rows: RowSet, lane: int) -> None:
        """Rows of a cohort come to the end of their token in a lane."""
        after = rows.of(self._rows.submitted)
        sweep.record.lanes[lane] = RowsInFlight(rows, after)
        sweep.record.due.add(("done", lane))
        sweep.sampled[lane] = rows

    def _submit_rows(self, sweep: _Sweep, built: BuiltLane) -> None:
        self._rows.submitted[built.rows.index] = built.after
        self._rows.last_step[built.rows.index] = sweep.record.step_id

    def _template_of(self, sweep: _Sweep) -> ProgramTemplate:
        """Parts recur as objects, so that lanes need not be compared one by one."""
        layers = self._layers_of(sweep)
        key = id(layers), *map(id, sweep.shapes)  # both are kept
        known = self._templates.get(key)
        if known is None:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            shapes = tuple(sweep.shapes)
            lanes = tuple(chain.from_iterable(shapes))
            template = cached_sweep(self._config.num_layers, lanes, layers)
            known = self._templates[key] = template, layers, shapes
        return known[0]

    def _layers_of(self, sweep: _Sweep) -> SweepLayers:
        choice = self._config.layers
        tokens = sum([slot.binding.num_tokens for slot in sweep.slots])
        if MAIN not in sweep.record.lanes or len(sweep.slots) > 1:
            return choice.with_cohorts(tokens)
        return choice.of(tokens)

    # --- sampling ---------------------------------------------------------------------------------

    def _sample_sweep(self, sweep: _Sweep) -> StepProgram | None:
        """Sample all rows that can be; rows with unknown history are noted to be sampled late."""
        sampled = sum(map(len, sweep.sampled.values()))
        most = self._config.max_sampled_rows or sampled
        assert sampled <= most, f"{sampled} rows to be sampled, where there is room for {most}"
        parts: list[_Sampled] = []
        for lane, rows in sweep.sampled.items():
            if len(rows) == 0:
                continue
            waits = self._waits(rows)
            if waits is None:
                parts.append(_Sampled(lane, rows, rows.everywhere))
                continue
            index = waits.nonzero()[0]
            self._flight.late.append(LateRows(sweep.record.step_id, lane, rows.some(index), index))
            sweep.record.due.add(("late", lane))
            index = (~waits).nonzero()[0]
            if len(index):
                parts.append(_Sampled(lane, rows.some(index), index))
        return self._sampling_program(sweep.record.step_id, parts) if parts else None

    def _waits(self, rows: RowSet) -> NDArray[np.bool_] | None:
        """Rows whose history is not on the host yet, but must be; None: no row."""
        if rows.late is None:
            return None
        waits = rows.late & (self._rows.pending[rows.index] > 0)
        return waits if waits.any() else None

    def late_sampling(self) -> list[StepProgram]:
        """Programs for rows whose history has meanwhile reached the host."""
        ready: list[StepProgram] = []
        waiting: list[LateRows] = []
        for late in self._flight.late:
            places = late.rows.alive()
            rows = late.rows if places is None else late.rows.some(places)
            if (self._rows.pending[rows.index] > 0).any():
                waiting.append(late)
                continue
            if len(rows):
                index = late.logits_index if places is None else late.logits_index[places]
                part = _Sampled(late.lane, rows, index)
                ready.append(self._sampling_program(late.forward_step, [part]))
            self._flight.settle(late.forward_step, "late", late.lane)
        self._flight.late = waiting
        return ready

    def _sampling_program(self, forward_step: int, parts: list[_Sampled]) -> StepProgram:
        step = self._flight.new_step()
        payload = tuple([self._sampled(part.rows, part.logits_index) for part in parts])
        for number, (lane, rows, _) in enumerate(parts):
            self._flight.sampling[(step, number)] = SamplingInFlight(forward_step, lane, rows)
            self._flight.steps[forward_step].due.add((f"tokens{number}", step))
            rows.count_up(self._rows.pending)
            self._rows.on_device[rows.index] = True
        return StepProgram(
            step,
            cached_sampling(len(parts)),
            sampling=payload,
            sampling_lanes=tuple(lane for lane, _, _ in parts),
            forward_step=forward_step,
        )

    def _sampled(self, rows: RowSet, logits_index: LongArray) -> SamplingRows:
        return self._sampling.build(rows, logits_index)

    # --- moves ------------------------------------------------------------------------------------

    def transfer(self, moves: list[tuple[int, Tier, IntArray, IntArray]]) -> StepProgram:
        """One program for moves of (row, target tier, source blocks, target blocks)."""
        step = self._flight.new_step()
        transfers: list[PageTransfer] = []
        for number, (row, target, source, blocks) in enumerate(moves):
            origin = Tier.HOST if target is Tier.DEVICE else Tier.DEVICE
            transfer_id = step * _TRANSFERS_PER_STEP + number
            transfers.append(PageTransfer(transfer_id, origin, target, source, blocks))
            self._flight.moves[transfer_id] = MoveInFlight(
                row, int(self._rows.epoch[row]), target is Tier.HOST, source, blocks, step
            )
            self._rows.last_step[row] = step
        return self._transfers(step, transfers)

    def demotion(self, source: IntArray, target: IntArray) -> StepProgram:
        """A program that copies blocks that nobody holds to the host."""
        step = self._flight.new_step()
        transfer_id = step * _TRANSFERS_PER_STEP
        self._flight.demotions.add(transfer_id)
        transfer = PageTransfer(transfer_id, Tier.DEVICE, Tier.HOST, source, target)
        return self._transfers(step, [transfer])

    @staticmethod
    def _transfers(step: int, transfers: list[PageTransfer]) -> StepProgram:
        template = cached_transfer(tuple(t.source for t in transfers))
        return StepProgram(step, template, transfers=tuple(transfers))


CompilerMaker = Callable[
    [SchedulerConfig, RowTable, Flight, Callable[[int], Sequence]], StepCompiler
]
"""Makes a compiler over a scheduler's rows and what is in flight; the last finds the sequence in a
row.
"""
