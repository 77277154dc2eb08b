"""`tandem bench online`: the chosen plan and each policy's, predicted and executed.

For every cell: the probes of `tandem profile` measure an emulated accelerator and the cores beside
it; from that profile alone the planner makes a plan per policy; the engine executes each plan on
the emulator, window by window in turns. The accelerator's and the link's times are emulated, by a
truth that planning does not know; the host's attention, the scheduler and their threads are real.
All figures carry the word `paced`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.bench.online.bound import Bound, bound_of
from tandem.bench.online.cell import OnlineCell
from tandem.bench.online.closed_loop import ClosedLoop
from tandem.bench.online.measured import effort_for, profile_cell
from tandem.bench.online.plans import Planned, ask, plan_policies, prices_of
from tandem.bench.online.window import PacedRun, Window
from tandem.bench.own_core import own_core
from tandem.engine.build_paced import build_paced_core
from tandem.engine.paced_machine import PacedOptions
from tandem.engine.plan_options import engine_config
from tandem.plan.online import OnlinePlan
from tandem.planner.plan_file import plan_file
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.probes.effort import Effort
from tandem.profiling.profile import Profile
from tandem.runtime.paced.executor import PacedClock
from tandem.runtime.paced.pool import HostPool
from tandem.spec.errors import ConfigError

SUITE = "online"
AUTO, BASELINE = "auto", "gpu-only"


@dataclass(frozen=True, slots=True)
class OnlineBench:
    """How much is run.

    Attributes:
        policies: beside `auto` and `gpu-only`; empty: all that can be planned.
        pairs: windows of every plan, in turns.
        window_s: least time of one.
        effort: of the probes; None: as much as `tandem profile` takes for one element type.
    """

    policies: tuple[str, ...] = ()
    pairs: int = 7
    window_s: float = 1.0
    effort: Effort | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of all policies, `auto` first."""
        wanted = self.policies or tuple(POLICIES)
        return tuple(dict.fromkeys((AUTO, BASELINE, *wanted)))


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """All that was measured of a cell.

    Attributes:
        windows: by policy, in the order of their turns; policies with equal plans share theirs.
            Those that cannot run it have none.
        bound: what none exceeds; None if the accelerator alone cannot run it.
    """

    cell: OnlineCell
    profile: Profile
    question: Question
    planned: tuple[Planned, ...]
    windows: Mapping[str, tuple[Window, ...]]
    bound: Bound | None


def run_online(
    bench: OnlineBench, cells: Sequence[OnlineCell], report: Callable[[str], None]
) -> list[CellOutcome]:
    """Every cell, one after the other.

    Args:
        report: told in words what is being done.

    Raises:
        ConfigError: the machine has a single core, an unknown policy, or a cell that nothing fits.
    """
    with own_core() as cores:
        return [_run_cell(bench, cell, cores, report) for cell in cells]


def _run_cell(
    bench: OnlineBench, cell: OnlineCell, cores: tuple[int, ...], report: Callable[[str], None]
) -> CellOutcome:
    report(str(cell))
    profile = profile_cell(cell, cores, bench.effort or effort_for(cell.model), report)
    host_bytes = cell.hardware.host.memory_bytes
    tokens = cell.max_num_batched_tokens
    question = ask(profile, cell.model, cell.load.workload(), host_bytes, tokens)
    begin = time.perf_counter()
    planned = plan_policies(question, bench.names)
    report(f"planned in {time.perf_counter() - begin:.1f} s")
    if planned[0].plan is None:
        raise ConfigError(f"{cell}: nothing fits; lower --layers", param="layers")
    for each in planned:
        if each.option is not None:
            described = each.option.candidate.describe(cell.model.num_layers)
            report(f"{each.policy}: {described}; {each.option.prediction.rates.tokens_per_s:.1f}/s")
    windows = _execute(bench, cell, planned, question, cores, report)
    alone = next(each.option for each in planned if each.policy == BASELINE)
    bound = None
    if alone is not None:
        decodes = cell.load.decodes_only
        bound = bound_of(decodes, profile, question, alone, windows[BASELINE])
    return CellOutcome(cell, profile, question, planned, windows, bound)


def _execute(
    bench: OnlineBench,
    cell: OnlineCell,
    planned: Sequence[Planned],
    question: Question,
    cores: tuple[int, ...],
    report: Callable[[str], None],
) -> dict[str, tuple[Window, ...]]:
    """Windows of each different plan, A B A B."""
    plans = {each.policy: each.plan for each in planned if each.plan is not None}
    with ExitStack() as stack:
        runs: dict[OnlinePlan, PacedRun] = {}
        for name, plan in plans.items():
            if plan not in runs:
                report(f"building {name}")
                runs[plan] = start(cell, question, plan, cores, bench.window_s)
                stack.callback(runs[plan].close)
        found: dict[OnlinePlan, list[Window]] = {plan: [] for plan in runs}
        for turn in range(bench.pairs):
            report(f"turn {turn + 1} of {bench.pairs}, {len(runs)} plans")
            for plan, run in runs.items():
                found[plan].append(run.measure())
    return {name: tuple(found[plan]) for name, plan in plans.items()}


def start(
    cell: OnlineCell,
    question: Question,
    plan: OnlinePlan,
    cores: tuple[int, ...],
    window_s: float,
    clock: PacedClock | None = None,
    pool: HostPool | None = None,
) -> PacedRun:
    """An engine that executes the plan from its file, in its steady state.

    Args:
        clock, pool: virtual ones make a run deterministic (tests); by default real.
    """
    planned = plan_file(cell.model_name, question, plan)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(planned.to_json(), "utf-8")
        given = {
            "model": cell.model_name,
            "plan": str(path),
            "gpu_memory": str(question.device_bytes),
            "cpu_memory": str(question.host_bytes),
            "enable_prefix_caching": False,
        }
        options = PacedOptions(perturbation=cell.truth, cores=cores, cache_bytes=cell.cache_bytes)
        engine = build_paced_core(
            engine_config(given),
            cell.model,
            cell.hardware,
            options,
            prices=prices_of(question, plan),
            clock=clock,
            pool=pool,
        )
    loop = ClosedLoop(
        engine.core, cell.load.workload(), plan.max_num_seqs, engine.executor.fast_forward
    )
    loop.fill()
    return PacedRun(engine, loop, window_s, time.perf_counter if clock is None else clock.now)
