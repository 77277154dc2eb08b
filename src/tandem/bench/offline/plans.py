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
from tandem.planner.question import Lengths, Question
from tandem.probes.accelerator import measure_accelerator
from tandem.probes.effort import coarse
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
        ceiling: of the linear programme, at the rates that were probed.
    """

    question: Question
    jobs: tuple[PlannedJob, ...]
    ceiling: BlockCeiling | None


def ask(cell: OfflineCell) -> Question:
    """The planner's question: the accelerator and the link are probed as on a real machine.

    The host's rates are told, since a host whose work is only timed cannot be measured, and so is
    the card's compute capability, which decides what kernels for few bits can do.
    """
    probed = PacedAccelerator(cell.hardware, cell.truth, VirtualClock())
    found = measure_accelerator(probed, coarse())
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


def plan_jobs(question: Question, policies: Sequence[str]) -> Planned:
    """Each policy's plan, in that order, and what none exceeds.

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
    return Planned(question, tuple(jobs), BlockCeilings(question, search.times).ceiling())
