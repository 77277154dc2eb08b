"""A paced run's own programs, executed by the exact emulator.

What the engine knew when it submitted a program has happened here, too, before it is given one;
joins happen as they did; all else comes in the most awkward legal order. After each token that is
sampled the one takes its place that the paced emulator had made up, so that what follows is of the
same text, and each token can be judged alone. Ids are taken modulo a small model's vocabulary.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch

from tandem.plan.binding import LaneBinding, LongArray
from tandem.plan.events import (
    Event,
    Failed,
    LaneAdvanced,
    LaneDone,
    StepRetired,
    TokensSampled,
    TransferDone,
)
from tandem.plan.program import LaneSlot, OpKind, Queue, StepProgram
from tandem.runtime.exact import ExactExecutor
from tandem.runtime.machine import Machine
from tandem.runtime.paced.journal import ProgramJournal, Released, Submitted
from tandem.runtime.running import Running
from tandem.spec.errors import TandemError

Sampled = tuple[int, int]
"""A sampling program and a lane of it."""
_Key = tuple[type[Event], int, int]


class ReplayError(TandemError):
    """A paced run's programs could not be executed."""


class ReplayExecutor(ExactExecutor):
    """The exact emulator, but for who joins, and which tokens others follow: those are given.

    Args:
        machine: of as many blocks, rows and layers as the programs are for.
        told: the paced emulator's tokens. vocab_size: of the machine's model.
        seed: of the adversarial order.
    """

    def __init__(
        self,
        machine: Machine,
        told: Mapping[Sampled, LongArray],
        vocab_size: int,
        seed: int = 0,
    ) -> None:
        super().__init__(machine, seed)
        self._told, self._vocab_size = told, vocab_size
        self._joined: dict[int, Mapping[int, bool]] = {}
        self._bindings: dict[int, LaneBinding] = {}

    def replay(self, program: StepProgram, joined: Mapping[int, bool]) -> None:
        """Queue a program.

        Args:
            joined: lane -> whether it joins; a lane that is not in it never does.
        """
        self._joined[program.step_id] = joined
        sampling = tuple(replace(rows, logprobs=0) for rows in program.sampling)
        lanes = tuple(self._lane(slot) for slot in program.lanes)
        self.submit(replace(program, sampling=sampling, lanes=lanes))

    def retired(self, step: int) -> None:
        """A program's joins are not asked for any more."""
        del self._joined[step]

    def release_cohort(self, cohort_id: int) -> None:
        """Free a finished cohort's buffers."""
        super().release_cohort(cohort_id)
        self._bindings.pop(cohort_id, None)

    def _lane(self, slot: LaneSlot) -> LaneSlot:
        """Within the vocabulary; a cohort's sweeps share a binding, as they did, not equal ones."""
        known = self._bindings.get(slot.cohort_id)
        binding = slot.binding
        if known is not None and _are_same(known, binding):
            return slot._replace(binding=known)
        ids = binding.token_ids
        if np.count_nonzero(ids >= self._vocab_size):
            ids = np.where(ids < 0, ids, ids % self._vocab_size)  # -1: as the slot table says
            binding = replace(binding, token_ids=ids)
        if slot.cohort_id:
            self._bindings[slot.cohort_id] = binding
        return slot._replace(binding=binding)

    def _decides(self, running: Running, joins: int) -> bool:
        guards = running.context.guards
        if joins in guards:
            return True
        joined = self._joined[running.context.program.step_id].get(joins)
        if joined is None:
            return False
        if not joined:
            guards[joins] = False
            return True
        return self._machine.cohort_ready(running)

    def _end(self, queue: Queue) -> None:
        running = self._started[queue]
        super()._end(queue)
        if running.op.kind is not OpKind.SAMPLE:
            return
        program = running.context.program
        for lane in running.op.lanes:
            told = self._told.get((program.step_id, lane))
            if told is not None:
                rows = torch.from_numpy(program.sampling[lane].rows).long()
                self._machine.slots[rows] = torch.from_numpy(told % self._vocab_size)


def _are_same(one: LaneBinding, other: LaneBinding) -> bool:
    """Of one cohort: whether they are of the same tokens."""
    same_rows = np.array_equal(one.token_rows, other.token_rows)
    return same_rows and np.array_equal(one.positions, other.positions)


def replayed(journal: ProgramJournal, executor: ReplayExecutor) -> Iterator[TokensSampled]:
    """Execute a journal, as far as its engine was told of it; what is sampled, as it comes.

    Raises:
        ReplayError: an operation failed, or the programs wait for each other.
    """
    happened: set[_Key] = set()
    for entry in journal.entries():
        if isinstance(entry, Submitted):
            executor.replay(entry.program, entry.guards)
        elif isinstance(entry, Released):
            executor.release_cohort(entry.cohort_id)
        else:
            told = {key for event in entry.events for key in _keys(event)}
            while not told <= happened:
                for event in executor.poll(wait=True):
                    happened.update(_keys(event))
                    if isinstance(event, TokensSampled):
                        yield event
                    elif isinstance(event, StepRetired):
                        executor.retired(event.step_id)
            happened -= told


def _keys(event: Event) -> Iterator[_Key]:
    """What tells it from all others.

    Raises:
        ReplayError: it is a failure.
    """
    if isinstance(event, Failed):
        raise ReplayError(
            f"replayed step {event.step_id} failed ({event.message}): this is a fault of "
            "Tandem's, please report it"
        )
    if isinstance(event, TransferDone):
        yield TransferDone, event.step_id, event.transfer_id
    elif isinstance(event, StepRetired):
        yield StepRetired, event.step_id, 0
    else:
        assert isinstance(event, LaneDone | LaneAdvanced | TokensSampled)
        yield type(event), event.step_id, event.lane
        if isinstance(event, LaneAdvanced):
            yield from ((LaneAdvanced, event.step_id, lane) for lane in event.before)
