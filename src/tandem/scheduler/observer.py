"""Take in events: progress, sampled tokens, ends of requests."""

import numpy as np
from numpy.typing import NDArray

from tandem.plan.events import (
    Event,
    Failed,
    LaneAdvanced,
    LaneDone,
    StepRetired,
    TokensSampled,
    TransferDone,
)
from tandem.scheduler.cohort import Cohort
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.in_flight import Flight
from tandem.scheduler.kv_manager import KVManager
from tandem.scheduler.rows import RowTable
from tandem.scheduler.running import Running
from tandem.scheduler.sequence import Sequence
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import FinishReason, RequestOutput, TokenLogprobs


class Observer:
    """Applies events to the scheduler's state and reports to requests' owners."""

    def __init__(
        self,
        config: SchedulerConfig,
        rows: RowTable,
        kv: KVManager,
        flight: Flight,
        running: Running,
        cohorts: dict[int, Cohort],
    ) -> None:
        self._config = config
        self._rows = rows
        self._kv = kv
        self._flight = flight
        self._running = running
        self._cohorts = cohorts
        self._finished_cohorts: list[int] = []

    def take_finished_cohorts(self) -> list[int]:
        """Cohorts ended since the last call."""
        finished, self._finished_cohorts = self._finished_cohorts, []
        return finished

    def observe(self, events: list[Event]) -> list[RequestOutput]:
        """Apply events in order.

        Raises:
            EngineDeadError: the executor failed.
        """
        outputs: list[RequestOutput] = []
        for event in events:
            match event:
                case TokensSampled():
                    self._tokens(event, outputs)
                case LaneDone():
                    self._lane_done(event)
                case LaneAdvanced():
                    self._lane_advanced(event)
                case TransferDone():
                    self._running.complete_move(self._flight.moves.pop(event.transfer_id))
                case StepRetired():
                    self._retired(event)
                case Failed():
                    raise EngineDeadError(f"step {event.step_id} failed: {event.message}")
        return outputs

    def _retired(self, event: StepRetired) -> None:
        reached = self._flight.retire(event.step_id)
        if reached is not None:
            self._kv.complete_step(reached)

    def _lane_done(self, event: LaneDone) -> None:
        step = self._flight.steps[event.step_id]
        lane = step.lanes[event.lane]
        alive = lane.alive(self._rows)
        rows = lane.rows[alive]
        self._rows.computed[rows] = lane.after[alive]
        self._publish(rows)
        self._flight.settle(event.step_id, "done", event.lane)

    def _publish(self, rows: NDArray[np.int32]) -> None:
        """Offer blocks that have become full to the prefix cache."""
        r = self._rows
        full = np.minimum(r.computed[rows], r.known[rows]) // self._config.block_size
        for row in rows[full > r.published[rows]].tolist():
            self._kv.publish(row, self._running.sequence_of(row))

    # --- cohorts ----------------------------------------------------------------------------------

    def _lane_advanced(self, event: LaneAdvanced) -> None:
        step = self._flight.steps[event.step_id]
        cohort = self._cohorts[step.cohorts[event.lane]]
        cohort.joining = None
        last = cohort.cursor == self._config.num_layers - 1
        if event.joined:
            cohort.cursor += 1
            cohort.attended += 1
            if last:
                cohort.joining = event.step_id
        elif last:
            self._undo_last_join(event.step_id, event.lane)
        self._flight.settle(event.step_id, "advanced", event.lane)

    def _undo_last_join(self, step_id: int, lane: int) -> None:
        """The cohort was not ready at its last layer: no logits came, so nothing was sampled."""
        step = self._flight.steps[step_id]
        step.due.discard(("done", lane))
        for key, sampling in list(self._flight.sampling.items()):
            if (sampling.forward_step, sampling.lane) == (step_id, lane):
                rows = sampling.rows
                self._rows.pending[rows.rows] -= 1
                step.due.discard((f"tokens{key[1]}", key[0]))
                del self._flight.sampling[key]

    def _dissolve(self, cohort_id: int) -> None:
        cohort = self._cohorts.pop(cohort_id)
        self._rows.cohort[cohort.rows] = 0
        self._finished_cohorts.append(cohort_id)

    # --- tokens -----------------------------------------------------------------------------------

    def _tokens(self, event: TokensSampled, outputs: list[RequestOutput]) -> None:
        record = self._flight.sampling.pop((event.step_id, event.lane))
        step = self._flight.steps[record.forward_step]
        alive = record.rows.alive(self._rows)
        rows, tokens = record.rows.rows[alive], event.token_ids[alive]
        self._rows.known[rows] += 1
        self._rows.pending[rows] -= 1
        if record.lane in step.cohorts:
            self._dissolve(step.cohorts[record.lane])
        self._publish(rows)
        stops = (self._rows.stop_ids[rows] == tokens[:, None]).any(axis=1)
        full = self._rows.known[rows] >= self._rows.limit[rows]
        places = np.flatnonzero(alive)
        for i, (row, token) in enumerate(zip(rows.tolist(), tokens.tolist(), strict=True)):
            sequence = self._running.sequence_of(row)
            sequence.tokens.append(token)
            if self._running.is_dead(row):
                continue
            if not event.valid[places[i]]:
                outputs.append(self._invalid(sequence))
                continue
            stop = bool(stops[i]) or (
                bool(self._rows.many_stops[row]) and token in sequence.stop_ids
            )
            logprobs = _logprobs(event, int(places[i]), sequence)
            outputs.append(self._output(sequence, token, stop, bool(full[i]), logprobs))
        self._flight.settle(record.forward_step, f"tokens{event.lane}", event.step_id)

    def _invalid(self, sequence: Sequence) -> RequestOutput:
        """The model gave this sequence no usable logits: it fails, the others go on."""
        self._running.end(sequence)
        message = "the model's output is not a number for this request; check the weights and dtype"
        return RequestOutput(sequence.request_id, (), FinishReason.ERROR, error=message)

    def _output(
        self,
        sequence: Sequence,
        token: int,
        stop: bool,
        full: bool,
        logprobs: tuple[TokenLogprobs, ...],
    ) -> RequestOutput:
        reason = FinishReason.STOP if stop else FinishReason.LENGTH if full else None
        if reason is not None:
            self._running.end(sequence)
        return RequestOutput(
            request_id=sequence.request_id,
            token_ids=(token,),
            finish_reason=reason,
            stop_token_id=token if stop else None,
            logprobs=logprobs,
            cached_tokens=max(0, sequence.cached_tokens),
        )


def _logprobs(event: TokensSampled, place: int, sequence: Sequence) -> tuple[TokenLogprobs, ...]:
    """This row's share of the step's log-probabilities: as many alternatives as it asked for."""
    wanted = sequence.request.sampling.logprobs
    if wanted is None or event.logprobs is None:
        return ()
    ids, values = event.top_token_ids, event.top_logprobs
    if wanted == 0 or ids is None or values is None:
        return (TokenLogprobs(float(event.logprobs[place])),)
    return (
        TokenLogprobs(
            float(event.logprobs[place]),
            tuple(ids[place, :wanted].tolist()),
            tuple(values[place, :wanted].tolist()),
        ),
    )
