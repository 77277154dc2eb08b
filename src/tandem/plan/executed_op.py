"""An operation that has run, and when: what traces and measures of overlap are made of."""

from collections.abc import Callable
from typing import NamedTuple

from tandem.plan.program import ProgramOp, StepProgram


class ExecutedOp(NamedTuple):
    """One operation of a program, after its end; a tuple, since there are very many.

    Attributes:
        lanes: indices of the program's lanes that took part.
        submitted_s: when the program was handed to the executor, in seconds of its clock; start_s
            and end_s likewise. A queue's operations come in order and do not overlap.
        num_layers: of operations that ran as one call, whole layers from this one on; 0: it ran
            alone.
    """

    op: ProgramOp
    program: StepProgram
    lanes: tuple[int, ...]
    submitted_s: float
    start_s: float
    end_s: float
    num_layers: int = 0

    @property
    def num_rows(self) -> int:
        """Requests that it worked for."""
        program = self.program
        if program.lanes:
            return sum(len(program.lanes[lane].binding.rows) for lane in self.lanes)
        return sum(len(program.sampling[lane].rows) for lane in self.lanes if program.sampling)

    @property
    def num_tokens(self) -> int:
        """Tokens that it computed, or sampled."""
        program = self.program
        if program.lanes:
            return sum(program.lanes[lane].binding.num_tokens for lane in self.lanes)
        return self.num_rows


OpListener = Callable[[ExecutedOp], None]
"""Told of operations in an order in which causes come before effects, from any thread, but never by
two at once."""
