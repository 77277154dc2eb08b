"""What an engine asked of the paced emulator and was told, in that order: to be executed again.

While time counts, an entry is a few references. Between windows entries are packed, since programs
of a long run would take gigabytes.
"""

import io
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.plan.events import Event, StepRetired
from tandem.plan.program import ProgramTemplate, StepProgram
from tandem.runtime.paced.program import PacedProgram
from tandem.spec.request import EngineRequest

Owners = NDArray[np.object_]
"""Request ids by place in the row table."""
_FAST = 1  # of zlib: programs of steps that follow each other are nearly alike


class Submitted(NamedTuple):
    """A program.

    Attributes:
        guards: lane -> whether it joined, of those of which it has been decided.
        owners: of its rows, as it was submitted.
    """

    program: StepProgram
    guards: Mapping[int, bool]
    owners: Owners


class Told(NamedTuple):
    """Events that the engine was given at once. Those of retired steps are without their times."""

    events: Sequence[Event]


class Released(NamedTuple):
    """A cohort of which nothing is left."""

    cohort_id: int


Entry = Submitted | Told | Released


class ProgramJournal:
    """Keeps what happened between an engine and the paced emulator.

    Args:
        owners: request ids by place in the row table, as they are now; the array is kept.

    Attributes:
        prompts: of all requests, by id.
    """

    def __init__(self, owners: Callable[[], Owners]) -> None:
        self.prompts: dict[str, tuple[int, ...]] = {}
        self._owners = owners
        self._entries: list[Entry] = []
        self._packed: list[bytes] = []
        self._templates: dict[int, ProgramTemplate] = {}

    def asked(self, request: EngineRequest) -> None:
        """The engine was given a request."""
        self.prompts[request.request_id] = request.prompt_token_ids

    def submitted(self, program: PacedProgram) -> None:
        """A program was; its guards are filled in as joins are decided."""
        self._entries.append(Submitted(program.program, program.guards, self._owners()))

    def told(self, events: Sequence[Event]) -> None:
        """The engine was told of these."""
        if events:
            self._entries.append(Told(events))

    def released(self, cohort_id: int) -> None:
        """A cohort's last tokens have been told."""
        self._entries.append(Released(cohort_id))

    def pack(self) -> None:
        """Bring into few bytes what cannot change any more: all before the first program of which
        a join may still be decided.
        """
        retired = {
            event.step_id
            for entry in self._entries
            if isinstance(entry, Told)
            for event in entry.events
            if isinstance(event, StepRetired)
        }
        ends = (
            place
            for place, entry in enumerate(self._entries)
            if isinstance(entry, Submitted) and entry.program.step_id not in retired
        )
        end = next(ends, len(self._entries))
        if end:
            self._packed.append(self._pack(self._entries[:end]))
            del self._entries[:end]

    def entries(self) -> Iterator[Entry]:
        """All of them, from the first."""
        for packed in self._packed:
            yield from _Unpickler(zlib.decompress(packed), self._templates).load()
        yield from self._entries

    @property
    def size_bytes(self) -> int:
        """Of what is packed."""
        return sum(map(len, self._packed))

    def _pack(self, entries: Sequence[Entry]) -> bytes:
        file = io.BytesIO()
        _Pickler(file, self._templates).dump([_without_times(entry) for entry in entries])
        return zlib.compress(file.getbuffer(), _FAST)


class _Pickler(pickle.Pickler):
    """Templates, which programs share, are named: they are kept for as long as the journal."""

    def __init__(self, file: io.BytesIO, templates: dict[int, ProgramTemplate]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._templates = templates

    def persistent_id(self, obj: Any) -> int | None:
        """The template's, which nothing else can get while it is kept."""
        if not isinstance(obj, ProgramTemplate):
            return None
        self._templates[id(obj)] = obj
        return id(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: bytes, templates: Mapping[int, ProgramTemplate]) -> None:
        super().__init__(io.BytesIO(packed))
        self._templates = templates

    def persistent_load(self, pid: int) -> ProgramTemplate:
        """The same object."""
        return self._templates[pid]


def _without_times(entry: Entry) -> Entry:
    if not isinstance(entry, Told):
        return entry
    return Told(
        tuple(
            StepRetired(event.step_id) if isinstance(event, StepRetired) else event
            for event in entry.events
        )
    )
