"""Tokens of a paced run that are really computed: its programs run on the exact emulator as well.

Joins happen there as they did in the paced run. All else comes in the most awkward legal order, and
only as far as is needed for the tokens whose time has come.
"""

from collections.abc import Mapping

from tandem.plan.events import Event, Failed, StepRetired, TokensSampled
from tandem.plan.program import StepProgram
from tandem.runtime.exact import ExactExecutor
from tandem.runtime.machine import Machine
from tandem.runtime.paced.program import PacedProgram
from tandem.runtime.running import Running
from tandem.spec.errors import TandemError


class ReplayExecutor(ExactExecutor):
    """The exact emulator, but for who joins, which others decide.

    Args:
        machine: of as many blocks, rows and layers as the programs are for.
        seed: of the adversarial order.
    """

    def __init__(self, machine: Machine, seed: int = 0) -> None:
        super().__init__(machine, seed)
        self._joined: dict[int, Mapping[int, bool]] = {}

    def replay(self, program: StepProgram, joined: Mapping[int, bool]) -> None:
        """Queue a program.

        Args:
            joined: lane -> whether it joins; a lane that is not in it waits until it is.
        """
        self._joined[program.step_id] = joined
        self.submit(program)

    def retired(self, step: int) -> None:
        """A program's joins are not asked for any more."""
        del self._joined[step]

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


class ReplayError(TandemError):
    """A paced run's programs could not be executed."""


class ReplayedTokens:
    """A `TokenSource` over an executor that replays.

    Attributes:
        num_programs: that it was given.
    """

    def __init__(self, executor: ReplayExecutor) -> None:
        self._executor = executor
        self._found: dict[tuple[int, int], TokensSampled] = {}
        self.num_programs = 0

    def submitted(self, program: PacedProgram) -> None:
        """Have it executed, too, later."""
        self.num_programs += 1
        self._executor.replay(program.program, program.guards)

    def sample(self, program: StepProgram, lane: int, forward: PacedProgram) -> TokensSampled:
        """Execute what leads to these tokens.

        Raises:
            ReplayError: an operation failed.
        """
        del forward
        key = (program.step_id, lane)
        while key not in self._found:
            for event in self._executor.poll(wait=True):
                self._take(event)
        return self._found.pop(key)

    def release_cohort(self, cohort_id: int) -> None:
        """Free its buffers."""
        self._executor.release_cohort(cohort_id)

    def close(self) -> None:
        """Execute what is left."""
        self._executor.close()

    def _take(self, event: Event) -> None:
        if isinstance(event, Failed):
            raise ReplayError(
                f"replayed step {event.step_id} failed ({event.message}): this is a fault of "
                "Tandem's, please report it"
            )
        if isinstance(event, TokensSampled):
            self._found[(event.step_id, event.lane)] = event
        elif isinstance(event, StepRetired):
            self._executor.retired(event.step_id)
