"""What a job's passes spend their queues' time on, by kind of work (KVPR, figure 9)."""

from dataclasses import dataclass, field

from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import OpKind, Part, Queue

WORK = ("weights", "keys and values", "activations", "accelerator", "CPU attention", "CPU layers")
_COPIES = {Part.CACHE: "keys and values", Part.PREFIX: "activations"}
_PASSES = "block"  # the template of passes
_ATTENTION = (OpKind.APPEND, OpKind.ATTEND)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """An operation listener; sums seconds of passes by kind of work."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WORK, 0.0))

    def executed(self, ran: ExecutedOp) -> None:
        """An operation has ended."""
        concerns_some = ran.lanes or ran.op.queue is Queue.WEIGHTS  # which come for all
        if ran.program.template.name == _PASSES and concerns_some:
            work = _work_of(ran)
            if work is not None:
                self.seconds[work] += ran.end_s - ran.start_s

    @property
    def shares(self) -> dict[str, float]:
        """Of all of them, that overlap or not."""
        total = sum(self.seconds.values())
        return {work: self.seconds[work] / total for work in WORK if total}


def _work_of(ran: ExecutedOp) -> str | None:
    queue = ran.op.queue
    if queue is Queue.WEIGHTS:
        return "weights"
    if queue is Queue.H2D:
        return _COPIES.get(ran.op.part)
    if queue is Queue.CPU:
        return "CPU attention" if ran.op.kind in _ATTENTION else "CPU layers"
    return "accelerator" if queue is Queue.ACCEL else None
