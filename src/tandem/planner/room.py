"""Which requests have room beside weights: asked tens of thousands of times, so by tables."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.held_blocks import HeldBlocks, Wants
from tandem.planner.places import places_of
from tandem.planner.question import Question

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

MAX_COHORT_ROWS = 256
"""Of all cohorts together."""


class Workspace(Protocol):
    """Of the accelerator's memory, what a step takes beside weights and pages."""

    def __call__(
        self,
        strategy: Strategy,
        rows: int,
        step_tokens: int = 0,
        *,
        device_rows: int = 0,
        cohorts: tuple[int, int] = (0, 0),
    ) -> int:
        """As `Footprint.workspace`."""
        ...


class _Table(dict[_Key, _Value]):
    """Values that are found when they are first looked up, which then takes no call."""

    def __init__(self, find: Callable[[_Key], _Value]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: _Key) -> _Value:
        found = self[key] = self._find(key)
        return found


class RowTables:
    """Of requests that run at once, by their number, in steps of one size.

    Attributes:
        most: that may.
        prompt: blocks of one that has been read.
        places: as `places_of`. wants: as `HeldBlocks.wants`.
        swept: by strategy as well, the workspace of requests that all take part in every sweep;
            None: prompts would not keep up with them.
    """

    def __init__(
        self, question: Question, held: HeldBlocks, workspace: Workspace, step_tokens: int
    ) -> None:
        self.most: int = question.most_rows(step_tokens)
        self.prompt: int = held.prompt
        self._question = question
        self._workspace, self._step_tokens = workspace, step_tokens
        self.places: _Table[int, int] = _Table(
            lambda rows: places_of(self._question, rows, self._step_tokens)
        )
        self.wants: _Table[int, Wants] = _Table(held.wants)
        self.swept: _Table[tuple[Strategy, int], int | None] = _Table(self._swept)
        self._workspaces: dict[tuple[Strategy, int, int, tuple[int, int]], int] = {}

    def workspace(
        self, strategy: Strategy, places: int, device: int = 0, cohorts: tuple[int, int] = (0, 0)
    ) -> int:
        """As `Footprint.workspace`."""
        key = strategy, places, device, cohorts
        found = self._workspaces.get(key)
        if found is None:
            found = self._workspaces[key] = self._workspace(
                strategy, places, self._step_tokens, device_rows=device, cohorts=cohorts
            )
        return found

    def _swept(self, key: tuple[Strategy, int]) -> int | None:
        strategy, rows = key
        if not self._question.prompts_keep_up(rows, float(rows), self._step_tokens):
            return None
        return self.workspace(strategy, self.places[rows])


class Room:
    """What weights leave of both memories, for requests of one strategy in steps of one size.

    Args:
        idle: a candidate without requests, with the layers elsewhere that these are.
        block_bytes: of a KV block. longest_blocks: of the longest request.

    Attributes:
        device_bytes, host_bytes: that weights leave.
    """

    def __init__(
        self,
        question: Question,
        tables: RowTables,
        idle: Candidate,
        device_bytes: int,
        host_bytes: int,
        block_bytes: int,
        longest_blocks: int,
    ) -> None:
        self._question, self._tables, self._idle = question, tables, idle
        self._strategy: Strategy = idle.strategy
        self._step: int = idle.step_tokens
        self.device_bytes: int = device_bytes
        self.host_bytes: int = host_bytes
        self._block_bytes, self._longest_blocks = block_bytes, longest_blocks
        attends = idle.strategy != "gpu-only"
        self._host_blocks: int = host_bytes // block_bytes if attends else 0
        self._has_cohorts: bool = idle.has_cohorts
        most_hosted = MAX_COHORT_ROWS if idle.has_cohorts else tables.most
        self._most_hosted: int = most_hosted
        self._crossings: dict[tuple[bool, int], _Crossing] = {}
        self._held: dict[tuple[int, int, int, int], bool] = {}

    def holds(self, device: int, hosted: int, passes: int = 0, *, prompts_here: int = 0) -> bool:
        """Whether so many requests, each whole in its tier, have room with the longest one, and
        leave prompts theirs in a sweep.

        Args:
            device: requests on the accelerator. hosted: on the host.
            passes, prompts_here: as in `Candidate`.
        """
        key = device, hosted, passes, prompts_here  # half of which are asked for again
        found = self._held.get(key)
        if found is None:
            found = self._held[key] = self._holds(*key)
        return found

    def _holds(self, device: int, hosted: int, passes: int, prompts_here: int) -> bool:
        tables, rows, question = self._tables, device + hosted, self._question
        if rows > tables.most or hosted > self._most_hosted or self.host_bytes < 0:
            return False
        if self._has_cohorts:
            crossing = self._crossing(device > 0, passes)
            served = device + hosted / crossing.sweeps
            if device > 1 and not question.prompts_keep_up(device, served, self._step):
                return False
            left = self.device_bytes - self._with_cohorts(device, hosted, crossing)
        else:
            needed = tables.swept[self._strategy, rows]
            if needed is None:
                return False
            left = self.device_bytes - needed
        if left < 0:
            return False
        here, there = left // self._block_bytes, self._host_blocks
        if self._longest_blocks > here + there:
            return False
        followed, reading = rows < question.lengths.requests, tables.places[rows] > rows
        wanted = tables.wants[device].of(here, followed=followed, reading=reading)
        if wanted + prompts_here * tables.prompt > here:
            return False
        if not hosted:
            return True
        return tables.wants[hosted].of(there, followed=followed, reading=reading) <= there

    def _with_cohorts(self, device: int, hosted: int, crossing: "_Crossing") -> int:
        """The step's workspace."""
        places = self._tables.places[device + hosted]
        beside = places - device - hosted
        seqs = device + beside if device and hosted else 0
        cohorts = crossing.cohorts, -(-hosted // crossing.cohorts)
        return self._tables.workspace(self._strategy, places, seqs, cohorts)

    def _crossing(self, beside: bool, passes: int) -> "_Crossing":
        """Args:
        beside: requests on the accelerator.
        """
        found = self._crossings.get((beside, passes))
        if found is None:
            one = self._idle._replace(device_rows=int(beside), host_rows=1, passes=passes)
            sweeps = one.sweeps_per_hosted_token(self._question.model.num_layers)
            found = self._crossings[beside, passes] = _Crossing(one.num_cohorts, sweeps)
        return found


class _Crossing(NamedTuple):
    """How many cohorts there are, and in how many sweeps one gets a token."""

    cohorts: int
    sweeps: int
