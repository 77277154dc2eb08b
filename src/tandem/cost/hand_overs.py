"""What a step with a part on the host takes beyond its terms: hand-overs between threads.

No probe measures them, and they are none of the device's: how soon threads wake up, and what they
hold each other up by. They are learnt from whole steps
([ADR 0102](../../docs/adr/0102-hand-overs-are-learnt.md)).
"""

from dataclasses import dataclass
from enum import Enum


class HandOver(Enum):
    """Kinds of steps, by how they hand work to the host.

    Attributes:
        NONE: not at all. DECODES: rows that decode ride along, and nobody else is in the step: it
            may be launched as one graph. LAUNCHED: they ride beside prompts or cohorts, operation
            by operation. COHORTS: nobody rides, but cohorts cross.
    """

    NONE = "none"
    DECODES = "decodes"
    LAUNCHED = "launched"
    COHORTS = "cohorts"


@dataclass(frozen=True, slots=True)
class HandOvers:
    """Seconds by kind.

    Attributes:
        decodes_s, launched_s: in each layer. cohorts_s: in a sweep, in the mean of all while
            cohorts are under way.
    """

    decodes_s: float = 0.0
    launched_s: float = 0.0
    cohorts_s: float = 0.0

    def step_s(self, kind: HandOver, num_layers: int) -> float:
        """Of a whole step. What is launched operation by operation takes no less than a graph."""
        match kind:
            case HandOver.NONE:
                return 0.0
            case HandOver.DECODES:
                return num_layers * self.decodes_s
            case HandOver.LAUNCHED:
                return num_layers * max(self.decodes_s, self.launched_s)
            case HandOver.COHORTS:
                return self.cohorts_s


NO_HAND_OVERS = HandOvers()


def kind_of(riding: bool, decodes_only: bool, cohorts: bool) -> HandOver:
    """Of a step.

    Args:
        riding: rows of the main lane are attended to on the host. decodes_only: it has no others
            than ones that decode. cohorts: some cross it, in the mean.
    """
    if riding:
        return HandOver.DECODES if decodes_only and not cohorts else HandOver.LAUNCHED
    return HandOver.COHORTS if cohorts else HandOver.NONE
