"""Requests of a batch job to programs over blocks, and events to outputs."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tandem.cost.block_calibration import BlockFactors
from tandem.cost.block_pass import PassWork
from tandem.plan.block_room import BlockRoom
from tandem.plan.events import Event, Failed, StepRetired, TokensSampled
from tandem.plan.offline import OfflinePlan
from tandem.plan.program import LaneSlot, StepProgram
from tandem.plan.prompt_parts import PartLimits, PromptSize, prompt_parts
from tandem.plan.refill import is_due
from tandem.plan.weights import streamed_layers
from tandem.scheduler.admission import make_sequence
from tandem.scheduler.blocks.adapting import BlockAdaptation
from tandem.scheduler.blocks.compiler import BlockCompiler
from tandem.scheduler.blocks.filling import fill_places
from tandem.scheduler.blocks.lanes import BlockLanes
from tandem.scheduler.blocks.places import BlockPlaces, KVHome
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.token_news import logprobs_of, no_token, one_token
from tandem.scheduler.waiting import WaitingQueue
from tandem.spec.errors import ContextLengthError, EngineDeadError, OverloadError, RequestError
from tandem.spec.request import EngineRequest, RequestOutput


@dataclass(frozen=True, slots=True)
class Handover:
    """What one plan's scheduler leaves to the next one's.

    Attributes:
        waiting: sequences that have not begun, with the seeds that they were given.
        arrivals: numbers of those to come. replans: what was said.
    """

    waiting: tuple[Sequence, ...]
    arrivals: Iterator[int]
    replans: tuple[str, ...]


class BlockScheduler:
    """Fills places with requests, and gives every sequence a token at a time.

    One program over prompts or one pass is under way at a time; what it brings for the next pass
    goes on while its tokens are taken in. Places of finished sequences are filled between passes:
    at once if no weights are streamed, else when they have been empty for as many tokens as a pass
    has sequences, since another program over prompts takes at least the time of a pass. Where all
    that are left are over before as much is lost once more, these are waited for, so that all enter
    together.

    Streamed sequences and those that the CPU attends to are shared out anew as a plan's terms say.
    Where the CPU computes layers and nothing keeps a sequence in its batch, those that are left at
    the end, when nobody waits, are gathered in few batches: weights are read once for each.

    Args:
        eos_ids: tokens that end a sequence unless it ignores them.
        prompt_tokens: most tokens of one program over prompts, but for a single longer prompt;
            None: no bound.

    Attributes:
        share_changes: how often sequences were shared out anew. replans: what was said of those
            that a wrong prediction brought about, or that pinned memory kept back, a line each.
            misjudged: there was such a prediction, and the plan is not one that stays as it is,
            until somebody has seen to it. drains: nobody
            enters, while those that are there go on to their ends.
    """

    def __init__(
        self,
        plan: OfflinePlan,
        config: SchedulerConfig,
        *,
        vocab_size: int,
        eos_ids: tuple[int, ...] = (),
        prompt_tokens: int | None = None,
    ) -> None:
        self._plan, self._config = plan, config
        self._prompt_tokens = prompt_tokens
        self._vocab_size, self._eos_ids = vocab_size, eos_ids
        self.room = BlockRoom.of(plan)
        self.places = BlockPlaces(plan, self.room)
        self.waiting = WaitingQueue()
        self._by_id: dict[str, Sequence] = {}
        self._by_row: dict[int, Sequence] = {}
        self._dead: list[int] = []
        self._lanes = BlockLanes(plan, self.places, self._by_row.__getitem__)
        self._compiler = BlockCompiler(plan.shape, self.places.rows, self._by_row.__getitem__)
        self._arrivals: Iterator[int] = itertools.count()
        self._streams = bool(streamed_layers(plan.weights).layers)
        self._gathers = plan.shape.batches_part
        self._idle_tokens = 0
        self._slots_void = True
        self._adaptation: BlockAdaptation | None = None
        terms = plan.fixed_terms if plan.terms is None else plan.terms
        if terms is not None:
            fixed = plan.terms is None
            self._adaptation = BlockAdaptation(
                terms, plan.host_rows, plan.streamed_rows, fixed=fixed
            )
        self.share_changes = 0
        self.replans: list[str] = []
        self.misjudged = False
        self.drains = False
        self._awaited: dict[tuple[int, int], LaneSlot] = {}

    # --- requests ---------------------------------------------------------------------------------

    def add(self, request: EngineRequest) -> None:
        """Accept a request.

        Raises:
            RequestError: it can never be served, or its id is taken.
            OverloadError: the queue is full.
        """
        if request.request_id in self._by_id:
            raise RequestError(f"request id '{request.request_id}' is in use; choose another")
        bound = self._config.max_num_queued_reqs
        if bound is not None and len(self.waiting) >= max(bound, 1 if self.places.num_free else 0):
            raise OverloadError(
                f"the queue is full ({len(self.waiting)} requests wait); retry later"
            )
        sequence = make_sequence(
            request, next(self._arrivals), self._config, self._eos_ids, self._vocab_size
        )
        if not self.places.could_hold(sequence):
            raise ContextLengthError(
                f"a request of up to {sequence.limit} tokens has no room in a block of the plan, "
                f"which has {self._plan.device_blocks} KV blocks of {self._plan.block_size} tokens "
                f"on the accelerator and {self._plan.host_blocks} on the host; lower max_tokens, "
                "or plan for longer requests",
                param="max_tokens",
            )
        self._by_id[request.request_id] = sequence
        self.waiting.add(sequence)

    def abort(self, request_id: str) -> None:
        """Forget a request; unknown ids are ignored. Its memory is free after the pass."""
        sequence = self._by_id.get(request_id)
        if sequence is not None:
            self._end(sequence)
            self._vacate()

    def abort_all(self) -> None:
        """Forget every request."""
        for request_id in list(self._by_id):
            self.abort(request_id)

    @property
    def num_requests(self) -> int:
        """Unfinished ones."""
        return len(self._by_id)

    @property
    def has_work(self) -> bool:
        """True if any request is unfinished, or tokens are awaited."""
        return bool(self._by_id) or self.is_busy

    @property
    def is_busy(self) -> bool:
        """Whether a submitted program's tokens have not all come."""
        return bool(self._awaited)

    # --- another plan -----------------------------------------------------------------------------

    @property
    def factors(self) -> BlockFactors:
        """What passes were measured to take over what was planned, term by term."""
        return BlockFactors() if self._adaptation is None else self._adaptation.factors

    @property
    def streamed_rows(self) -> int:
        """Of a batch, places for streamed sequences as they are shared out now."""
        return self.places.count(KVHome.STREAMED)

    @property
    def is_empty(self) -> bool:
        """Whether no sequence has a place."""
        return not self._by_row

    def hand_over(self) -> Handover:
        """All that wait, which are forgotten here."""
        waiting = tuple(self.waiting)
        for sequence in waiting:
            self.waiting.remove(sequence)
            del self._by_id[sequence.request_id]
        return Handover(waiting, self._arrivals, tuple(self.replans))

    def take_over(self, rest: Handover) -> None:
        """Go on where another plan's scheduler ended. Nothing was added here before."""
        self._arrivals = rest.arrivals
        self.replans += rest.replans
        for sequence in rest.waiting:
            self._by_id[sequence.request_id] = sequence
            self.waiting.add(sequence)

    # --- steps ------------------------------------------------------------------------------------

    def schedule(self) -> list[StepProgram]:
        """Programs to submit now, in order; none while tokens are awaited."""
        if self.is_busy:
            return []
        room = self._room()
        if room and self._is_worth_a_refill():
            entered = self._fill_places()
            if entered:
                parts = [
                    self._lanes.prompts(np.array(rows, dtype=np.int64), part)
                    for part, rows in enumerate(self._parts(entered))
                ]
                # where a program holds no more prompts, another one follows at once
                self._idle_tokens = self._plan.block_rows if self._room() else 0
                self._slots_void = True
                return self._awaiting([self._compiler.prompts(parts)])
        if not self._by_row:
            if self._adaptation is not None:
                self._adaptation.paused()
            return []
        self._idle_tokens += room
        self._adapt()
        if self._gathers and not self.waiting:
            self.places.gather()
        self.places.begin_pass()
        lanes = [self._lanes.tokens(batch) for batch in range(self._plan.batches)]
        fills, self._slots_void = self._slots_void, False
        programs = self._compiler.tokens(lanes, fills=fills)
        if self._adaptation is not None and not fills:
            self._adaptation.submitted(programs[-1].step_id, self._work())
        return self._awaiting(programs)

    def _adapt(self) -> None:
        """Share sequences with KV on the host out anew, if that is due and worth it; where shares
        are fixed, say so if passes take another time than was planned.
        """
        if self._adaptation is None or not self._adaptation.is_due:
            return
        change = self._adaptation.review(self._work())
        if change is None:
            return
        if change.bounded is not None:
            self.replans.append(change.bounded)
        if change.said is not None:
            self.replans.append(change.said)
        if self._plan.terms is not None:
            self.misjudged |= change.said is not None
            self.share(change.streamed_rows)

    def share(self, streamed_rows: int) -> None:
        """Between two passes: of each batch's places with KV on the host, so many are for streamed
        sequences, the others for those that the CPU attends to.
        """
        moved = self.places.share(streamed_rows)
        homes = self.places.homes()
        streamed, cpu = KVHome.STREAMED in homes, KVHome.CPU in homes
        shape = replace(self._plan.shape, streamed=streamed, cpu=cpu)
        if moved or shape != self._compiler.shape:
            self._compiler.change(shape)
            self._slots_void = True
            self.share_changes += 1

    def _work(self) -> PassWork:
        """Of a pass over the sequences that there are."""
        rows = self.places.rows.owned()
        known, home = self.places.rows.known[rows], self.places.home[rows]
        counted: list[int] = []
        for each in (KVHome.RESIDENT, KVHome.STREAMED, KVHome.CPU):
            chosen = home == int(each)
            counted += [int(chosen.sum()), int(known[chosen].sum())]
        return PassWork(self._plan.batches, *counted)

    def _awaiting(self, programs: list[StepProgram]) -> list[StepProgram]:
        last = programs[-1]
        self._awaited = {
            (last.step_id, lane): slot
            for lane, slot in enumerate(last.lanes)
            if len(slot.binding.rows)
        }
        return programs

    def _room(self) -> int:
        """About how many of those that wait could enter."""
        smallest = min(self.waiting, key=lambda sequence: sequence.limit, default=None)
        if smallest is None or self.drains:
            return 0
        return self.places.num_open(smallest)

    def _is_worth_a_refill(self) -> bool:
        if not self._streams or not self._by_row:
            return True
        left = max(s.limit - len(s.tokens) for s in self._by_row.values())
        return is_due(self._idle_tokens, self._plan.block_rows, self.places.num_free, left)

    def _fill_places(self) -> list[int]:
        """Give places to those that wait; returns their rows, by batch."""
        entered: list[int] = []
        for sequence, row in fill_places(self.places, self.waiting, self._prompt_tokens):
            self.waiting.remove(sequence)
            sequence.row = row
            self._by_row[row] = sequence
            entered.append(row)
        return sorted(entered, key=lambda row: int(self.places.batch[row]))

    def _parts(self, rows: list[int]) -> Iterator[list[int]]:
        """Whole prompts, as many as are computed at once, at least one."""
        plan, table = self._plan, self.places.rows
        sizes = [self._prompt_size(row, int(table.known[row])) for row in rows]
        most = PartLimits(plan.prefill_tokens, self.room.slot_blocks, plan.batch_rows)
        for part in prompt_parts(sizes, most):
            yield [rows[place] for place in part]

    def _prompt_size(self, row: int, tokens: int) -> PromptSize:
        drains = self.places.home[row] != int(KVHome.RESIDENT)
        return PromptSize(tokens, -(-tokens // self._plan.block_size) if drains else 0)

    # --- events -----------------------------------------------------------------------------------

    def observe(self, events: list[Event]) -> list[RequestOutput]:
        """Take in what the executor reports; returns news for the requests' owners.

        Raises:
            EngineDeadError: the executor failed.
        """
        outputs: list[RequestOutput] = []
        for event in events:
            if isinstance(event, Failed):
                raise EngineDeadError(f"step {event.step_id} failed: {event.message}")
            if isinstance(event, TokensSampled):
                outputs += self._tokens(event)
            elif isinstance(event, StepRetired) and self._adaptation is not None:
                self._adaptation.retired(event.step_id, event.times)
        self._vacate()
        return outputs

    def _tokens(self, event: TokensSampled) -> Iterator[RequestOutput]:
        slot = self._awaited.pop((event.step_id, event.lane))
        rows, table = slot.binding.rows.tolist(), self.places.rows
        for place, (row, token) in enumerate(zip(rows, event.token_ids.tolist(), strict=True)):
            sequence = self._by_row[row]
            if self._by_id.get(sequence.request_id) is not sequence:
                continue  # aborted meanwhile
            if not event.valid[place]:
                self._end(sequence)
                yield no_token(sequence, sequence.num_output)
                continue
            sequence.tokens.append(token)
            table.known[row] += 1
            output = one_token(
                sequence,
                token,
                stop=token in sequence.stop_ids,
                full=len(sequence.tokens) >= sequence.limit,
                logprobs=logprobs_of(event, place, sequence),
            )
            if output.finish_reason is not None:
                self._end(sequence)
            yield output

    def _end(self, sequence: Sequence) -> None:
        """A sequence is over; its place is free when the pass is."""
        del self._by_id[sequence.request_id]
        if sequence.row is None:
            self.waiting.remove(sequence)
        else:
            self._dead.append(sequence.row)

    def _vacate(self) -> None:
        """Free places of sequences that are over, unless tokens of theirs are awaited."""
        if self.is_busy:
            return
        for row in self._dead:
            self.places.leave(row)
            del self._by_row[row]
        self._dead.clear()

    def check(self) -> None:
        """Places, rows and blocks agree.

        Raises:
            AssertionError: with the numbers.
        """
        self.places.check()
        taken = set(self.places.rows.owned().tolist())
        assert taken == set(self._by_row), f"rows {taken}, sequences {set(self._by_row)}"
        assert self.has_work or not self._by_row, self._by_row
