"""What was said in a paced run: which token of which request each sampling program gave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tandem.plan.binding import LongArray
from tandem.plan.events import Event, StepRetired, TokensSampled
from tandem.runtime.paced.journal import Owners, ProgramJournal, Submitted, Told
from tandem.runtime.paced.replayed import ReplayError, Sampled


@dataclass(frozen=True, slots=True)
class Texts:
    """Of all requests that were given a token.

    Attributes:
        requests: ids, in the order of their first tokens. tokens: of each, int64: its prompt, and
            what it was given; `prompts` are as long.
        told: ids as the paced emulator made them up, by sampling program and lane.
        places: of these, which they are of all tokens that were given, request after request.
        programs: that were submitted.
    """

    requests: tuple[str, ...]
    tokens: tuple[LongArray, ...]
    prompts: tuple[int, ...]
    told: Mapping[Sampled, LongArray]
    places: Mapping[Sampled, LongArray]
    programs: int


def read_texts(journal: ProgramJournal, vocab_size: int) -> Texts:
    """Follow a journal.

    Args:
        vocab_size: modulo which ids are taken.

    Raises:
        ReplayError: a request was given two tokens for one place, or none for one before it.
    """
    reader = _Reader()
    for entry in journal.entries():
        if isinstance(entry, Submitted):
            reader.submitted(entry)
        elif isinstance(entry, Told):
            reader.told(entry.events)
    return reader.texts(journal.prompts, vocab_size)


class _Reader:
    """Finds out whose token each one is, by the rows of the program whose logits it is from."""

    def __init__(self) -> None:
        self._flying: dict[int, Submitted] = {}
        self._forward: dict[int, Submitted] = {}
        self._texts: dict[str, dict[int, int]] = {}
        self._told: dict[Sampled, LongArray] = {}
        self._whose: dict[Sampled, tuple[Owners, LongArray]] = {}
        self._programs = 0

    def submitted(self, entry: Submitted) -> None:
        """A program; one that samples another's logits keeps that one."""
        self._programs += 1
        program = entry.program
        self._flying[program.step_id] = entry
        if program.sampling:
            forward = entry if program.lanes else self._flying[program.forward_step]
            self._forward[program.step_id] = forward

    def told(self, events: Sequence[Event]) -> None:
        """What came at once: that a step has retired may stand before its tokens."""
        for event in events:
            if isinstance(event, TokensSampled):
                self._sampled(event)
        for event in events:
            if isinstance(event, StepRetired):
                del self._flying[event.step_id]
                self._forward.pop(event.step_id, None)

    def _sampled(self, event: TokensSampled) -> None:
        program = self._flying[event.step_id].program
        forward = self._forward[event.step_id]
        binding = forward.program.lanes[program.sampling_lanes[event.lane]].binding
        tokens = binding.logits_index[program.sampling[event.lane].logits_index]
        owners = forward.owners[binding.token_rows[tokens]]
        positions = binding.positions[tokens].astype(np.int64) + 1
        self._told[event.step_id, event.lane] = event.token_ids
        self._whose[event.step_id, event.lane] = owners, positions
        for owner, position, token in zip(owners, positions.tolist(), event.token_ids, strict=True):
            text = self._texts.setdefault(owner, {})
            if text.setdefault(position, int(token)) != token:
                raise ReplayError(f"request {owner} was given two tokens for place {position}")

    def texts(self, prompts: Mapping[str, tuple[int, ...]], vocab_size: int) -> Texts:
        """All of it."""
        tokens: list[LongArray] = []
        first: dict[str, int] = {}
        given = 0
        for owner, text in self._texts.items():
            prompt = prompts[owner]
            whole = {**dict(enumerate(prompt)), **text}
            if sorted(text) != list(range(len(prompt), len(whole))):
                raise ReplayError(f"request {owner} was not given a token for every place")
            ids = [whole[place] for place in range(len(whole))]
            tokens.append(np.array(ids, dtype=np.int64) % vocab_size)
            first[owner] = given - len(prompt)
            given += len(text)
        places = {
            key: np.array([first[owner] for owner in owners], dtype=np.int64) + positions
            for key, (owners, positions) in self._whose.items()
        }
        lengths = tuple(len(prompts[owner]) for owner in self._texts)
        return Texts(tuple(self._texts), tuple(tokens), lengths, self._told, places, self._programs)
