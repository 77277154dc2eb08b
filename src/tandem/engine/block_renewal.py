"""An engine of blocks that goes over to another plan where its machine is not as it was told."""

import gc
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tandem.cost.block_calibration import BlockFactors
from tandem.engine.block_core import BlockCore
from tandem.engine.block_stats import BlockCounts
from tandem.engine.stats import EngineStats
from tandem.plan.block_room import BlockRoom
from tandem.plan.offline import OfflinePlan
from tandem.plan.plan_file import PlanFile
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.scheduler.blocks.places import BlockPlaces
from tandem.scheduler.sequence import Sequence
from tandem.spec.errors import EngineDeadError, TandemError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest, RequestOutput
from tandem.spec.workload import RequestShape

_LOG = logging.getLogger(__name__)
_LEAST_GAIN = 1.05
"""Loading included: predictions are off by some per cent."""

BuildBlocks = Callable[[PlanFile, BlockCounts], BlockCore]


@dataclass(frozen=True, slots=True)
class Renewal:
    """What another plan takes.

    Attributes:
        machine: for which the plan was made.
        build: an engine of a plan, in the place of one that has been released.
        load_s: that building takes.
    """

    model: ModelSpec
    precision: Precision
    machine: HardwareSpec
    build: BuildBlocks
    load_s: float


def may_be_renewed(planned: PlanFile) -> bool:
    """Whether another plan may take this one's place: it has terms to measure by, and neither few
    bits nor another type, in which the CPU computes layers or MLPs, depend on where something lies,
    so that tokens would be the same.
    """
    plan = planned.blocks
    few = plan.quantized_layers == "streamed" or plan.host_kv_dtype != plan.kv_dtype
    depends = few or plan.cpu_mlps or plan.cpu_layers or plan.cpu_columns
    return plan.terms is not None and planned.machine is not None and not depends


def renewal_note(planned: PlanFile, *, timed: bool) -> str | None:
    """At the start, what a job does not do where its passes take another time than was planned;
    None: it does all that it can.

    Args:
        timed: the accelerator's work is.
    """
    plan = planned.blocks
    if not timed:
        return (
            "the emulated accelerator keeps no time: passes are not compared with what was planned"
        )
    if plan.terms is None and plan.fixed_terms is None:
        return (
            "the plan's file has no terms of its passes: they are not compared with what was "
            "planned; plan anew (tandem plan --offline)"
        )
    if plan.terms is None:
        return (
            f"passes that take another time than was planned are told, but change nothing: "
            f"{_why_fixed(plan)}"
        )
    if may_be_renewed(planned):
        return None
    why = (
        "its file does not hold the machine that it was made for"
        if planned.machine is None
        else "tokens would depend on the plan, since few bits, or layers, MLPs or columns that the "
        "CPU computes, depend on where something lies"
    )
    return (
        "where passes take another time than was planned, only shares of KV are solved anew, and "
        f"no other plan takes this one's place: {why}"
    )


def _why_fixed(plan: OfflinePlan) -> str:
    if not plan.host_rows:
        return "no KV is on the host, whose shares could be solved anew"
    if plan.recomputed_tokens:
        return "prefixes are recomputed"
    return "the plan's policy, or its memory, fixes shares"


class RenewedBlocks:
    """Does as its engine of blocks does; when passes take another time than was planned, plans for
    the requests that wait, by the rates that were measured. If another plan is better by enough,
    those that have begun go on to their ends, the engine is released, and one of the new plan is
    built, which reads the weights to where that one has them.

    Args:
        core: the first engine, of `planned`.
    """

    def __init__(self, core: BlockCore, planned: PlanFile, renewal: Renewal) -> None:
        self._core: BlockCore | None = core
        self._planned, self._renewal = planned, renewal
        self._next: PlanFile | None = None
        self._factors = BlockFactors()  # by which it was planned

    @property
    def core(self) -> BlockCore:
        """The engine of the plan that is in force.

        Raises:
            EngineDeadError: none could be built.
        """
        if self._core is None:
            raise EngineDeadError("the engine of a plan made anew could not be built")
        return self._core

    @property
    def planned(self) -> PlanFile:
        """The plan that is in force."""
        return self._planned

    def add_request(self, request: EngineRequest) -> None:
        """As `BlockCore`."""
        self.core.add_request(request)

    def abort(self, request_id: str) -> None:
        """As `BlockCore`."""
        self.core.abort(request_id)

    def has_work(self) -> bool:
        """As `BlockCore`."""
        return self.core.has_work()

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Nothing happens beside the steps."""

    def is_parked(self) -> bool:
        """False: a step always has something to do."""
        return False

    def tend(self) -> None:
        """Nothing to do."""

    def stats(self) -> EngineStats:
        """As `BlockCore`; counters are of the whole job."""
        return self.core.stats()

    def step(self) -> list[RequestOutput]:
        """As `BlockCore`. The step in which a plan is made takes as long as planning; the one in
        which it comes into force, as loading.
        """
        if self._next is not None and self.core.scheduler.is_empty:
            self._plan_again()
            if self._next is not None:
                self._renew(self._next)
        outputs = self.core.step()
        self._see_to()
        return outputs

    def close(self) -> None:
        """As `BlockCore`."""
        if self._core is not None:
            self._core.close()

    # --- another plan -----------------------------------------------------------------------------

    def _see_to(self) -> None:
        """Plan for the rest, if passes were misjudged."""
        scheduler = self.core.scheduler
        misjudged, scheduler.misjudged = scheduler.misjudged, False
        if misjudged and self._next is None:
            self._plan_rest(scheduler)

    def _plan_again(self) -> None:
        """With what was measured while the block came to its end: attention on the CPU may not have
        been before.
        """
        scheduler = self.core.scheduler
        if scheduler.factors != self._factors:
            self._plan_rest(scheduler)

    def _plan_rest(self, scheduler: BlockScheduler) -> None:
        """Find a better plan for those that wait, say so, and let nobody enter before it; or let
        them enter.
        """
        self._factors = scheduler.factors
        self._next = self._better(scheduler, self._factors)
        scheduler.drains = self._next is not None

    def _better(self, scheduler: BlockScheduler, factors: BlockFactors) -> PlanFile | None:
        from tandem.planner.offline.replan import as_measured, plan_rest

        waiting, plan, renewal = tuple(scheduler.waiting), self._planned.blocks, self._renewal
        if len(waiting) < plan.block_rows:
            self._say(
                f"all but shares stays as it is: {len(waiting)} requests wait, less than a block"
            )
            return None
        machine, shapes = as_measured(renewal.machine, factors), tuple(map(_shape, waiting))
        found = plan_rest(
            machine, renewal.model, renewal.precision, plan, scheduler.streamed_rows, shapes
        )
        if found is None or not _holds(found.plan, waiting):
            self._say("all but shares stays as it is: no other plan is better for those that wait")
            return None
        gain = found.before_s / (found.after_s + renewal.load_s)
        took = (
            f"the {len(waiting)} requests that wait take {found.after_s:.3g} s and loading "
            f"{renewal.load_s:.3g}, for {found.before_s:.3g} s"
        )
        if gain < _LEAST_GAIN:
            self._say(f"all but shares stays as it is: by the best other plan, {took}")
            return None
        self._say(f"from the next block on {found.after}; until then {found.before}: {took}")
        return replace(
            self._planned, hardware=found.question.hardware.name, plan=found.plan, machine=machine
        )

    def _say(self, line: str) -> None:
        said = f"planned anew: {line}"
        self.core.scheduler.replans.append(said)
        _LOG.warning(said)

    def _renew(self, following: PlanFile) -> None:
        """Release the engine and build the other plan's; if that cannot be, this one's again.

        Raises:
            EngineDeadError: nor can that.
        """
        core, self._next = self.core, None
        rest, counts = core.scheduler.hand_over(), core.stats_of_blocks.counts
        core.release()
        self._core = None
        del core
        gc.collect()  # its memory is wanted now
        reason = None
        try:
            self._core = self._renewal.build(following, counts)
        except TandemError as error:
            following, reason = self._planned, error.message
            self._core = self._again(following, counts)
        self._planned = following
        if following.machine is not None:
            self._renewal = replace(self._renewal, machine=following.machine)
        self.core.scheduler.take_over(rest)
        if reason is not None:
            self._say(f"the plan before is kept: {reason}")

    def _again(self, planned: PlanFile, counts: BlockCounts) -> BlockCore:
        try:
            return self._renewal.build(planned, counts)
        except TandemError as error:
            raise EngineDeadError(f"the engine could not be built again: {error.message}") from None


def _shape(sequence: Sequence) -> RequestShape:
    """As long as it may come to."""
    return RequestShape(sequence.num_prompt, max(1, sequence.limit - sequence.num_prompt))


def _holds(plan: OfflinePlan, waiting: Iterable[Sequence]) -> bool:
    """Whether each of them has room in a block of the plan."""
    places = BlockPlaces(plan, BlockRoom.of(plan))
    return all(map(places.could_hold, waiting))
