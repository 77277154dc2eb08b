"""One pass over the tokens of a block: when each operation runs, in virtual time."""

from tandem.planner.cycle import Cycle, steady_cycle
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Question


def pass_cycle(question: Question, candidate: BlockCandidate) -> Cycle:
    """The pass that gives every sequence of a block a token, at mean context."""
    passes = BlockTimes(question).each_operation(candidate)
    return steady_cycle(passes, question)
