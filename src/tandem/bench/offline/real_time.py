"""`tandem bench offline --real-time`: what virtual time says of a batch job, beside real time.

One job on a pair of accelerator and host that is scaled to one core of attention, so that the core
of this machine that attends is as slow beside the emulated accelerator as a real host beside a real
one. The probes of `tandem profile` measure both; the plan made from that profile alone is executed
in virtual time, told the rates that were found, and in real time: the host really attends, the
scheduler takes the time that it takes, and accelerator and link keep to the emulator's. A run whose
lateness exceeds 5% of a stage says nothing, and is marked so.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.job import Executed, execute, execute_in_real_time
from tandem.bench.online.cell import Load, make_cell
from tandem.bench.online.measured import effort_for, profile_cell
from tandem.bench.online.plans import ask
from tandem.bench.own_core import own_core
from tandem.bench.records import BenchRow
from tandem.plan.plan_file import PlanFile
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.policies import find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file
from tandem.planner.question import Lengths
from tandem.probes.effort import Effort
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.report import MAX_LATENESS_SHARE
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HostFacts

_PAIR, _MODEL, _LAYERS = "t4-scaled", "llama-2-7b", 8
_LOAD, _REQUESTS = Load(128, 24), 48
"""Half a minute, and more sequences than the accelerator has memory for."""
_RUNS = 3


@dataclass(frozen=True, slots=True)
class RealTimeJob:
    """What is run.

    Attributes:
        policies: by name. runs: of each in real time.
        effort: of the probes; None: as much as `tandem profile` takes for one element type.
    """

    policies: tuple[str, ...] = ("auto", "flexgen")
    layers: int = _LAYERS
    load: Load = _LOAD
    requests: int = _REQUESTS
    runs: int = _RUNS
    effort: Effort | None = None


@dataclass(frozen=True, slots=True)
class RealTimeRun:
    """A policy's plan, executed.

    Attributes:
        virtual: in virtual time. real: in real time, in the order of turns.
    """

    policy: str
    option: BlockOption
    virtual: Executed
    real: tuple[Executed, ...]


@dataclass(frozen=True, slots=True)
class RealTimeOutcome:
    """All that came of it; the cell's host as it was measured."""

    cell: OfflineCell
    runs: tuple[RealTimeRun, ...]


def run_real_time(
    job: RealTimeJob, truth: Perturbation, report: Callable[[str], None]
) -> RealTimeOutcome:
    """Each policy's plan once in virtual time, then all in real time, in turns.

    Args:
        truth: how accelerator and link deviate from their description.
        report: told in words what is being done.

    Raises:
        ConfigError: the machine has a single core, or a policy cannot run this.
    """
    online = make_cell(_PAIR, _MODEL, job.layers, job.load, truth)
    with own_core() as cores:
        effort = job.effort or effort_for(online.model)
        profile = profile_cell(online, cores, effort, report)
        workload, host = job.load.workload(job.requests), online.hardware.host
        question = ask(
            profile, online.model, workload, host.memory_bytes, online.max_num_batched_tokens
        )
        question = replace(question, lengths=Lengths.of(workload))
        cell = OfflineCell(
            online.model_name,
            online.whole,
            online.model,
            job.load,
            job.requests,
            online.hardware,
            replace(online.hardware, host=_measured(host, question.hardware.host)),
            truth,
            online.max_num_batched_tokens,
        )
        search = OfflineSearch(question)
        planned = [_planned(search, cell, name) for name in job.policies]
        virtual = [execute(cell, file) for _, file in planned]
        real: list[list[Executed]] = [[] for _ in planned]
        for turn in range(job.runs):
            for name, (_, file), found in zip(job.policies, planned, real, strict=True):
                found.append(execute_in_real_time(cell, file, cores))
                report(f"{name}, run {turn + 1}: {found[-1].tokens_per_s:.1f} tokens/s")
    runs = zip(job.policies, planned, virtual, real, strict=True)
    return RealTimeOutcome(
        cell,
        tuple(
            RealTimeRun(name, option, once, tuple(all_)) for name, (option, _), once, all_ in runs
        ),
    )


def _measured(told: HostFacts, found: HostFacts) -> HostFacts:
    """Rates as they were found; copies delay attention as the emulator has it in either time."""
    return replace(
        told,
        memory_bandwidth_bytes_per_s=found.memory_bandwidth_bytes_per_s,
        flops_per_s=found.flops_per_s,
        peak_memory_bandwidth_bytes_per_s=None,
        shared_memory_bandwidth_bytes_per_s=told.pool_bytes_per_s,
    )


def _planned(search: OfflineSearch, cell: OfflineCell, name: str) -> tuple[BlockOption, PlanFile]:
    policy = find_offline_policy(name)
    option = search.best(policy)
    if option is None:
        raise ConfigError(f"{cell}: {name} cannot run this", param="policy")
    option = search.simplest(policy, option)
    plan = offline_plan(search, option.candidate, adapts=policy.adapts)
    return option, offline_plan_file(cell.model_name, search.question, plan)


def rows_of(outcome: RealTimeOutcome) -> Iterator[BenchRow]:
    """Rows of the common record format."""
    for run in outcome.runs:
        row = partial(BenchRow, str(outcome.cell), f"paced {run.policy}")
        rates = _spread([each.tokens_per_s for each in run.real])
        reached = rates[0]
        yield row("throughput", reached, "tokens/s", None, rates[1])
        yield row("predicted over executed", run.option.tokens_per_s / reached, "ratio", 1.0)
        yield row("virtual time over executed", run.virtual.tokens_per_s / reached, "ratio", 1.0)
        pass_s = median(each.pass_s for each in run.real)
        yield row("virtual pass over executed", run.virtual.pass_s / pass_s, "ratio", 1.0)
        valid = sum(each.report.valid for each in run.real) / len(run.real)
        yield row("runs valid", valid, "share", 1.0)
        late = max(each.report.lateness_p95_s / each.report.stage_s for each in run.real)
        yield row("lateness over a stage, worst run", late, "share", MAX_LATENESS_SHARE)


def _spread(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    return median(values), (min(values), max(values))


def describe(outcome: RealTimeOutcome) -> Iterator[str]:
    """Lines for people."""
    yield str(outcome.cell)
    for run in outcome.runs:
        yield (
            f"  {run.policy}: {run.option.tokens_per_s:.1f} tokens/s predicted, "
            f"{run.virtual.tokens_per_s:.1f} in virtual time"
        )
        yield f"    {run.option.candidate.describe(outcome.cell.model.num_layers)}"
        for each in run.real:
            judged = "valid" if each.report.valid else f"invalid: {'; '.join(each.report.reasons)}"
            yield f"    {each.tokens_per_s:.1f} in real time, {each.passes} passes; {judged}"
