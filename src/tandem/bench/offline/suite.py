"""`tandem bench offline`: plans of batch jobs of each policy, predicted and executed.

For every cell: the probes of `tandem profile` measure an emulated accelerator and its link; from
that the planner makes an offline plan per policy; the engine of blocks executes each plan's whole
job on the paced emulator, by a truth that planning does not know. All of it is in virtual time: the
programs, their order and their waits are the engine's own, but the scheduler takes no time, and the
CPU's attention takes what the host's description says. All figures carry the word `virtual`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.job import Executed, execute
from tandem.bench.offline.plans import AUTO, Planned, ask, ceiling_of, plan_jobs
from tandem.bench.offline.split import SplitRun, run_splits
from tandem.plan.offline import OfflinePlan
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.plan_file import offline_plan_file
from tandem.spec.errors import ConfigError

SUITE = "offline"


@dataclass(frozen=True, slots=True)
class OfflineOutcome:
    """All that came of a cell.

    Attributes:
        executed: by policy; those with equal plans share theirs, and those that cannot run it have
            none.
        splits: one batch divided between link and CPU.
    """

    cell: OfflineCell
    planned: Planned
    executed: Mapping[str, Executed]
    splits: tuple[SplitRun, ...] = ()


def run_offline(
    policies: Sequence[str], cells: Sequence[OfflineCell], report: Callable[[str], None]
) -> Iterator[OfflineOutcome]:
    """Every cell, one after the other, each as soon as it is done.

    Args:
        policies: beside `auto`; empty: all that can be planned.
        report: told in words what is being done.

    Raises:
        ConfigError: an unknown policy, or a cell that nothing fits (`selection.check_room`).
    """
    names = tuple(dict.fromkeys((AUTO, *(policies or OFFLINE_POLICIES))))
    for cell in cells:
        yield _run_cell(names, cell, report)


def _run_cell(
    names: Sequence[str], cell: OfflineCell, report: Callable[[str], None]
) -> OfflineOutcome:
    report(str(cell))
    begin = time.perf_counter()
    question = ask(cell)
    planned = Planned(question, plan_jobs(question, names), ceiling_of(cell))
    report(f"planned in {time.perf_counter() - begin:.1f} s")
    if planned.jobs[0].plan is None:
        raise ConfigError(f"{cell}: nothing fits; raise --layers", param="layers")
    found: dict[OfflinePlan, Executed] = {}
    executed: dict[str, Executed] = {}
    for job in planned.jobs:
        if job.plan is None:
            continue
        if job.plan not in found:
            begin = time.perf_counter()
            file = offline_plan_file(cell.model_name, planned.question, job.plan)
            found[job.plan] = execute(cell, file)
            rates, run_s = found[job.plan].tokens_per_s, time.perf_counter() - begin
            report(f"{job.policy}: {rates:.1f} tokens/s, executed in {run_s:.1f} s")
        executed[job.policy] = found[job.plan]
    splits = run_splits(cell, planned.question)
    for run in splits:
        report(f"divided, {run.name}: {run.executed.both_share:.0%} of passes both busy")
    return OfflineOutcome(cell, planned, executed, splits)
