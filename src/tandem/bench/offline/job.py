"""One plan's whole job on the paced emulator, in virtual time or in real time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.bench.offline.both_busy import BothBusy
from tandem.bench.offline.cell import OfflineCell
from tandem.engine.block_stats import BlockCounts
from tandem.engine.building.paced_blocks import PacedBlocks, build_paced_blocks
from tandem.engine.building.paced_machine import PacedOptions
from tandem.engine.building.paced_types import block_types
from tandem.engine.sizing.plan_options import engine_config
from tandem.memory.page import KVPageSpec
from tandem.plan.executed_op import OpListener
from tandem.plan.plan_file import PlanFile
from tandem.runtime.paced.executor import PacedClock, RealClock
from tandem.runtime.paced.host_truth import HostTruth
from tandem.runtime.paced.pool import HostPool
from tandem.runtime.paced.report import PacedReport
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.dtype import parse_dtype
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.workload import Workload

_FIRST_TOKEN, _TOKENS = 3, 61
_NO_CACHE = 1  # bytes of cache that the host's pages must exceed: they are not read


@dataclass(frozen=True, slots=True)
class Executed:
    """A job from its first program to its last token.

    Attributes:
        prompts_s: programs over prompts. passes_s: those that give every sequence a token, fills
            included.
        refills, passes: how many of each.
        rows: sequences in a pass, in the mean.
        link_s: of passes, how long the link to the accelerator worked. both_s: how long the CPU did
            at the same time. passes_bytes: what the link brought meanwhile.
        share_changes: how often sequences were shared out anew between link and CPU. replans: what
            was said where passes took another time than predicted.
    """

    tokens: int
    wall_s: float
    prompts_s: float
    passes_s: float
    refills: int
    passes: int
    rows: float
    link_s: float
    both_s: float
    passes_bytes: float
    share_changes: int
    replans: tuple[str, ...]
    report: PacedReport

    @property
    def tokens_per_s(self) -> float:
        """Of output, over the whole job."""
        return self.tokens / self.wall_s

    @property
    def pass_s(self) -> float:
        """Of a pass, in the mean."""
        return self.passes_s / max(1, self.passes)

    @property
    def link_share(self) -> float:
        """Of passes, in which the link worked."""
        return self.link_s / self.passes_s if self.passes_s else 0.0

    @property
    def both_share(self) -> float:
        """Likewise, the CPU and the link at once."""
        return self.both_s / self.passes_s if self.passes_s else 0.0


def execute(cell: OfflineCell, planned: PlanFile, listeners: Sequence[OpListener] = ()) -> Executed:
    """Run the cell's job as the plan says, in virtual time.

    Args:
        listeners: told of every operation.

    Raises:
        ConfigError: the plan cannot be executed.
    """
    options, pool = virtual_host(cell, planned)
    return _executed(cell, planned, options, VirtualClock(), pool, listeners)


def virtual_host(cell: OfflineCell, planned: PlanFile) -> tuple[PacedOptions, VirtualPool]:
    """The cell's truth, in virtual time, for an engine of the plan."""
    plan = planned.blocks
    types = block_types(plan, cell.model, parse_dtype(planned.dtype))
    kv, host_kv = types.precision.kv, types.precision.host_kv
    page = KVPageSpec.of_model(cell.model, dtype=kv, block_size=plan.block_size, host_dtype=host_kv)
    columns = plan.cpu_columns
    host = HostTruth(cell.model, page, cell.hardware.host, cell.truth, columns, types)
    options = PacedOptions(perturbation=cell.truth, cores=(0,), cache_bytes=_NO_CACHE)
    return options, VirtualPool(host.duration_s)


def execute_in_real_time(cell: OfflineCell, planned: PlanFile, cores: tuple[int, ...]) -> Executed:
    """Likewise, while real time passes, and the host really attends and computes.

    Args:
        cores: that do so; the scheduler has another.

    Raises:
        ConfigError: the plan cannot be executed.
    """
    options = PacedOptions(perturbation=cell.truth, cores=cores)
    return _executed(cell, planned, options, RealClock(), None)


def _executed(
    cell: OfflineCell,
    planned: PlanFile,
    options: PacedOptions,
    clock: PacedClock,
    pool: HostPool | None,
    listeners: Sequence[OpListener] = (),
) -> Executed:
    both = BothBusy()
    engine = build_job(
        cell, planned, options, clock=clock, pool=pool, listeners=(both.executed, *listeners)
    )
    try:
        return _run(engine, cell.workload, clock, both)
    finally:
        engine.core.close()


def build_job(
    cell: OfflineCell,
    planned: PlanFile,
    options: PacedOptions,
    *,
    clock: PacedClock,
    pool: HostPool | None,
    listeners: Sequence[OpListener] = (),
    counts: BlockCounts | None = None,
) -> PacedBlocks:
    """An engine of the plan on the cell's machine; it has no requests yet.

    Args:
        counts: of engines before this one.

    Raises:
        ConfigError: the plan cannot be executed.
    """
    plan = planned.blocks
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(planned.to_json(), "utf-8")
        given = {
            "model": cell.model_name,
            "plan": str(path),
            "gpu_memory": str(plan.accelerator.capacity_bytes),
            "cpu_memory": str(plan.host.capacity_bytes),
        }
        return build_paced_blocks(
            engine_config(given),
            cell.model,
            cell.hardware,
            options,
            clock=clock,
            pool=pool,
            listeners=listeners,
            counts=counts,
        )


def job_requests(workload: Workload) -> Iterator[EngineRequest]:
    """Of all lengths that the job has."""
    for number, shape in enumerate(workload.requests):
        prompt = tuple(_FIRST_TOKEN + (number + i) % _TOKENS for i in range(shape.prompt_tokens))
        params = SamplingParams(max_tokens=shape.generated_tokens, temperature=0.0, ignore_eos=True)
        yield EngineRequest(str(number), prompt, params)


def _run(engine: PacedBlocks, workload: Workload, clock: PacedClock, both: BothBusy) -> Executed:
    """Each step is a program over prompts, or a pass, whose tokens have all come when it ends."""
    core = engine.core
    for request in job_requests(workload):
        core.add_request(request)
    begun = set[str]()
    tokens, times, brought, counts, rows = 0, [0.0, 0.0], [0.0, 0.0], [0, 0], 0
    engine.executor.begin_window()
    while core.has_work():
        before_s, before_bytes = clock.now(), engine.executor.report().brought_bytes
        emitted = [output for output in core.step() if output.token_ids]
        passed = emitted[0].request_id in begun
        times[passed] += clock.now() - before_s
        brought[passed] += engine.executor.report().brought_bytes - before_bytes
        if passed:
            both.passes.append((before_s, clock.now()))
        counts[passed] += 1
        rows += len(emitted) if passed else 0
        tokens += sum(len(output.token_ids) for output in emitted)
        begun.update(output.request_id for output in emitted)
    return Executed(
        tokens,
        sum(times),
        times[False],
        times[True],
        counts[False],
        counts[True],
        rows / max(1, counts[True]),
        both.link_s,
        both.both_s,
        brought[True],
        engine.scheduler.share_changes,
        tuple(engine.scheduler.replans),
        engine.executor.report(),
    )
