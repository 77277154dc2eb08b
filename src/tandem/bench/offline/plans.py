"""Plans of every offline policy for a cell, from probes of its accelerator and link."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.online.cell import DTYPE
from tandem.memory.margin import margin_bytes
from tandem.plan.offline import OfflinePlan
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.ceiling import BlockCeiling, BlockCeilings
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.policies import find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Lengths, Question
from tandem.probes.accelerator import measure_accelerator
from tandem.probes.effort import Effort, coarse, thorough
from tandem.profiling.hardware import accelerator_facts, link_facts
from tandem.runtime.paced.probed import PacedAccelerator
from tandem.runtime.paced.virtual import VirtualClock
from tandem.spec.hardware import HardwareSpec
from tandem.spec.precision import Precision

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """What a policy would do; None if it cannot run this at all."""

    policy: str
    option: BlockOption | None
    plan: OfflinePlan | None


@dataclass(frozen=True, slots=True)
class Planned:
    """All plans of a cell.

    Attributes:
        ceiling: what none exceeds (`ceiling_of`).
    """

    question: Question
    jobs: tuple[PlannedJob, ...]
    ceiling: BlockCeiling | None


def ask(cell: OfflineCell, effort: Effort | None = None) -> Question:
    """The planner's question: the accelerator and the link are probed as on a real machine, as
    coarsely as `tandem profile` does unless another effort is given.

    The host's rates are told, since a host whose work is only timed cannot be measured, and so is
    the card's compute capability, which decides what kernels for few bits can do.
    """
    probed = PacedAccelerator(cell.hardware, cell.truth, VirtualClock())
    found = measure_accelerator(probed, effort or coarse())
    told, host = cell.hardware.accelerator, cell.hardware.host
    card = told.memory_bytes
    facts = replace(accelerator_facts(found), compute_capability=told.compute_capability)
    return Question(
        model=cell.model,
        hardware=HardwareSpec(found.name, facts, link_facts(found), host),
        precision=Precision.uniform(DTYPE),
        lengths=Lengths.of(cell.workload),
        device_bytes=card - margin_bytes(card),
        host_bytes=host.memory_bytes,
        max_num_batched_tokens=cell.max_num_batched_tokens,
    )


def may_run(question: Question) -> bool:
    """Whether any plan fits."""
    search = OfflineSearch(question)
    return next(search.candidates.of(find_offline_policy(AUTO)), None) is not None


def ceiling_at(question: Question) -> BlockCeiling | None:
    """What no plan exceeds at the question's rates; None if nothing fits."""
    return BlockCeilings(question, BlockTimes(question)).ceiling()


def ceiling_of(cell: OfflineCell, precision: Precision | None = None) -> BlockCeiling | None:
    """What no plan exceeds at rates probed thoroughly, and so no run.

    What coarse probes, by which plans are made, find of an accelerator that reads prompts is up to
    2.5% less than it reaches: runs exceeded ceilings of that by up to 0.8%.

    Args:
        precision: what may be in which types; all as in the cell by default.
    """
    question = ask(cell, thorough())
    return ceiling_at(question if precision is None else replace(question, precision=precision))


def plan_jobs(question: Question, policies: Sequence[str]) -> tuple[PlannedJob, ...]:
    """Each policy's plan, in that order.

    Raises:
        ConfigError: an unknown policy.
    """
    search = OfflineSearch(question)
    jobs: list[PlannedJob] = []
    for name in policies:
        policy = find_offline_policy(name)
        option, plan = search.best(policy), None
        if option is not None:
            option = search.simplest(policy, option)
            plan = offline_plan(search, option.candidate, adapts=policy.adapts)
        jobs.append(PlannedJob(name, option, plan))
    return tuple(jobs)
