"""A program on its way through the queues."""

from dataclasses import dataclass, field

from tandem.plan.program import LaneSlot, ProgramTemplate
from tandem.planner.fluid.groups import Schedule
from tandem.simulator.costs import ProgramLoad


@dataclass(slots=True, eq=False)
class Flying:
    """A program in flight.

    Attributes:
        slots: of its lanes; none if no cohort takes part.
        max_wait_s: of joins that may be refused.
        sampling_lanes: of a sampling program, the forward program's lane of each of its own.
        forward: of a sampling program, the one whose logits it reads; `sampled_by` the inverse.
        number: among those that the queues were given.
        left_out: lanes whose joins were refused.
        told: lanes of cohorts of whose joins the scheduler has been told.
    """

    step_id: int
    template: ProgramTemplate
    schedule: Schedule
    load: ProgramLoad
    slots: tuple[LaneSlot, ...] = ()
    max_wait_s: float | None = None
    sampling_lanes: tuple[int, ...] = ()
    forward: "Flying | None" = None
    sampled_by: "Flying | None" = None
    number: int = -1
    left_out: frozenset[int] = frozenset()
    told: set[int] = field(default_factory=set[int])
