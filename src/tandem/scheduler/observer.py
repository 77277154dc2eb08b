"""Take in events: progress, sampled tokens, ends of requests."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import LongArray
from tandem.plan.events import (
    Event,
    Failed,
    LaneAdvanced,
    LaneDone,
    StepRetired,
    TokensSampled,
    TransferDone,
)
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.in_flight import Flight
from tandem.scheduler.kv_manager import KVManager
from tandem.scheduler.outputs import StepOutputs, TokenColumns
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.rows import RowState, RowTable
from tandem.scheduler.running import Running
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.token_news import logprobs_of, no_token, one_token
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import RequestOutput, TokenLogprobs

if TYPE_CHECKING:
    from tandem.scheduler.cohort import Cohort
    from tandem.scheduler.hand_over_timer import HandOverTimer
    from tandem.scheduler.prefix_tiers import PrefixTiers
    from tandem.scheduler.reading import ReadRule
    from tandem.scheduler.step_timer import StepTimer


_DRAINING, _RETURNING = RowState.DRAINING, RowState.RETURNING


class Observer:
    """Applies events to the scheduler's state and reports to requests' owners."""

    def __init__(
        self,
        config: SchedulerConfig,
        rows: RowTable,
        kv: KVManager,
        flight: Flight,
        running: Running,
        cohorts: "dict[int, Cohort]",
        tiers: "PrefixTiers | None",
        timer: "StepTimer | None",
        reading: "ReadRule | None" = None,
        hand_overs: "HandOverTimer | None" = None,
    ) -> None:
        self._rows = rows
        self._kv = kv
        self._flight = flight
        self._running = running
        self._cohorts = cohorts
        self._tiers, self._timer, self._reading = tiers, timer, reading
        self._block_size = np.array(config.block_size, dtype=np.int32)
        self._hand_overs = hand_overs
        self._finished_cohorts: list[int] = []
        self._news = False

    def take_news(self) -> bool:
        """Whether since the last call anything has happened by which a proposal may change. Copies
        and tokens always may; that a lane is done, a cohort has joined as was expected of it, or a
        program has ended may not if nobody waits for just that.
        """
        news, self._news = self._news, False
        return news

    def take_finished_cohorts(self) -> list[int]:
        """Cohorts ended since the last call."""
        finished, self._finished_cohorts = self._finished_cohorts, []
        return finished

    def observe(self, events: list[Event]) -> StepOutputs:
        """Apply events in order.

        Raises:
            EngineDeadError: the executor failed.
        """
        outputs = StepOutputs()
        for event in events:
            match event:
                case StepRetired():
                    self._retired(event)
                case TokensSampled():
                    self._news = True
                    self._tokens(event, outputs)
                case LaneDone():
                    self._lane_done(event)
                case LaneAdvanced():
                    self._lane_advanced(event)
                case TransferDone():
                    self._news = True
                    self._transferred(event.transfer_id)
                case Failed():
                    raise EngineDeadError(f"step {event.step_id} failed: {event.message}")
        return outputs

    def _transferred(self, transfer_id: int) -> None:
        move = self._flight.moves.pop(transfer_id, None)
        if move is not None:
            self._running.complete_move(move)
            return
        assert self._tiers is not None, f"transfer {transfer_id} is nobody's"
        self._flight.demotions.remove(transfer_id)
        self._tiers.arrived()

    def _retired(self, event: StepRetired) -> None:
        reached = self._flight.retire(event.step_id)
        if self._timer is not None:
            self._timer.retired(event.step_id, event.times)
        if self._hand_overs is not None:
            self._hand_overs.retired(event.step_id, event.times)
        if self._reading is not None:
            self._reading.retired(event.step_id, event.times)
        freed = reached is not None and self._kv.complete_step(reached)
        self._news |= freed or not self._flight.busy

    def _lane_done(self, event: LaneDone) -> None:
        step = self._flight.steps[event.step_id]
        lane = step.lanes[event.lane]
        places = lane.rows.alive()
        rows = lane.rows if places is None else lane.rows.some(places)
        self._rows.computed[rows.index] = lane.after if places is None else lane.after[places]
        r = self._rows
        if self._kv.prefix.enabled:
            self._news = True
            self._publish(rows)
        elif r.count(_DRAINING) or r.count(_RETURNING):
            self._news = True
        self._running.returning.settle()
        self._flight.settle(event.step_id, "done", event.lane)

    def _publish(self, rows: RowSet) -> None:
        """Offer what has become full to the prefix cache: its tokens are known, and its KV is
        complete.
        """
        r, at = self._rows, rows.index
        full = np.minimum(r.computed[at], r.known[at]) // self._block_size
        due = full > r.published[at]
        if np.count_nonzero(due):
            chosen = rows.rows[due]
            self._kv.publish(chosen, self._running.sequences_of(chosen), full[due])

    # --- cohorts ----------------------------------------------------------------------------------

    def _lane_advanced(self, event: LaneAdvanced) -> None:
        step = self._flight.steps[event.step_id]
        cohort = self._cohorts[step.cohorts[event.lane]]
        for lane in event.before:
            cohort.decide(joined=True)
            if self._timer is not None:
                self._timer.joined(event.step_id, lane)
        refused = cohort.decide(joined=event.joined)
        if refused and cohort.last is not None:
            self._undo_last_join(*cohort.last)
            cohort.last = None
        # where it would join next stands since its joins were submitted
        self._news |= not (event.joined and (cohort.ahead or cohort.undecided))
        if event.joined and event.lane not in step.lanes and self._timer is not None:
            self._timer.joined(event.step_id, event.lane)
        self._flight.settle(event.step_id, "advanced", event.lane)

    def _undo_last_join(self, step_id: int, lane: int) -> None:
        """The cohort does not come to its last layer: no logits do, so nothing is sampled."""
        step = self._flight.steps[step_id]
        step.due.discard(("done", lane))
        for key, sampling in list(self._flight.sampling.items()):
            if (sampling.forward_step, sampling.lane) == (step_id, lane):
                self._rows.pending[sampling.rows.index] -= 1
                step.due.discard((f"tokens{key[1]}", key[0]))
                del self._flight.sampling[key]

    def _dissolve(self, cohort_id: int) -> None:
        cohort = self._cohorts.pop(cohort_id)
        self._rows.cohort[cohort.rows.index] = 0
        self._finished_cohorts.append(cohort_id)

    # --- tokens -----------------------------------------------------------------------------------

    def _tokens(self, event: TokensSampled, outputs: StepOutputs) -> None:
        record = self._flight.sampling.pop((event.step_id, event.lane))
        step = self._flight.steps[record.forward_step]
        places = record.rows.alive()
        rows = record.rows if places is None else record.rows.some(places)
        tokens = event.token_ids if places is None else event.token_ids[places]
        valid = event.valid if places is None else event.valid[places]
        self._running.add_tokens(rows, tokens)
        rows.count_down(self._rows.pending)
        if record.lane in step.cohorts:
            self._dissolve(step.cohorts[record.lane])
        if self._kv.prefix.enabled:
            self._publish(rows)
        full, stops = rows.full(), rows.stopped(tokens)
        singular = _any_of(full, stops, rows.needs_care(), None if _all(valid) else ~valid)
        plain = None if singular is None else ~singular
        outputs.add_columns(self._plain(rows, tokens, plain))
        for i in () if singular is None else singular.nonzero()[0].tolist():
            place = i if places is None else int(places[i])
            row, token = int(rows.rows[i]), int(tokens[i])
            stop = stops is not None and bool(stops[i])
            self._singular(event, place, row, token, stop, bool(full[i]), outputs)
        self._flight.settle(record.forward_step, f"tokens{event.lane}", event.step_id)

    def _plain(
        self, rows: RowSet, tokens: LongArray, chosen: NDArray[np.bool_] | None
    ) -> TokenColumns:
        """News of some of the rows, or of all, of which there is nothing to say but their token."""
        if chosen is None:
            return TokenColumns(rows.request_ids, tokens, rows.cached_tokens)
        r, at = self._rows, rows.rows[chosen]
        return TokenColumns(r.request_ids[at].tolist(), tokens[chosen], r.cached[at])

    def _singular(
        self,
        event: TokensSampled,
        place: int,
        row: int,
        token: int,
        stop: bool,
        full: bool,
        outputs: StepOutputs,
    ) -> None:
        """News of a row of which there is more to say than its token."""
        if self._running.is_dead(row):
            return
        sequence = self._running.sequence_of(row)
        if not event.valid[place]:
            outputs.add(self._invalid(sequence))
            return
        stop = stop or (bool(self._rows.many_stops[row]) and token in sequence.stop_ids)
        logprobs = logprobs_of(event, place, sequence)
        outputs.add(self._output(sequence, token, stop, full, logprobs))

    def _invalid(self, sequence: Sequence) -> RequestOutput:
        """The model gave this sequence no usable logits: it fails, the others go on."""
        self._running.end(sequence)
        # the token that is none has been counted already
        return no_token(sequence, sequence.num_output - 1)

    def _output(
        self,
        sequence: Sequence,
        token: int,
        stop: bool,
        full: bool,
        logprobs: tuple[TokenLogprobs, ...],
    ) -> RequestOutput:
        output = one_token(sequence, token, stop=stop, full=full, logprobs=logprobs)
        if output.finish_reason is not None:
            self._running.end(sequence)
        return output


def _any_of(*masks: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Where one of these is true; None: nowhere."""
    found = None
    for mask in masks:
        if mask is not None and np.count_nonzero(mask):
            found = mask if found is None else found | mask
    return found


def _all(mask: NDArray[np.bool_]) -> bool:
    return np.count_nonzero(mask) == len(mask)
