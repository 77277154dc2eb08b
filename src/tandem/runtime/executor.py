"""The contract between the engine and whatever runs its programs (contracts 3, 6 and 14)."""

from dataclasses import dataclass
from typing import Protocol

from tandem.plan.events import Event
from tandem.plan.program import StepProgram


@dataclass(frozen=True, slots=True)
class Rank:
    """This executor's place among those that share each layer; KV is sharded by KV head."""

    index: int = 0
    world_size: int = 1


class Executor(Protocol):
    """Runs programs in order of submission and reports events.

    Forward, sampling and transfer programs all go through `submit`; a sampling program names the
    forward step whose logits it reads and must be submitted before the next forward program.
    """

    @property
    def rank(self) -> Rank:
        """Place in the group; alone for now."""
        ...

    def submit(self, program: StepProgram) -> None:
        """Queue a program; returns without waiting for it."""
        ...

    def poll(self, *, wait: bool) -> list[Event]:
        """Events since the last call, in the order they became true.

        Args:
            wait: block until there is at least one; only legal while a program is in flight.
        """
        ...

    def release_cohort(self, cohort_id: int) -> None:
        """Free the buffers of a cohort whose last tokens have been reported."""
        ...

    def close(self) -> None:
        """Finish what is in flight, then free everything."""
        ...
