"""Plans, workloads and runs that tests of the simulator share."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.stepped import stepped
from tandem.planner.answer import online_plan
from tandem.planner.candidate import Strategy, candidate_of
from tandem.planner.elsewhere import CpuHome, Elsewhere
from tandem.planner.fluid.queues import Span
from tandem.planner.option import Option
from tandem.planner.search.search import Search
from tandem.scheduler.scheduler import Scheduler
from tandem.simulator.build import Machine, Planned, build
from tandem.simulator.loop import Loop
from tandem.simulator.outcome import Outcome
from tandem.simulator.record import Record
from tandem.simulator.simulate import outcome_of_run
from tandem.simulator.skip import Skipper
from tandem.spec.workload import Workload, drawn_workload, parse_lengths

LAYERS = 6
LLAMA = short(plannable_spec("llama-3.1-8b"), LAYERS)
GEMMA = short(plannable_spec("gemma-2-9b"), LAYERS)
"""With a window in every second layer."""


@dataclass(frozen=True)
class Case:
    """One way to run a model of six layers on an A10G.

    Attributes:
        device_blocks, host_blocks: of the pools; None: as the plan says.
    """

    strategy: Strategy
    device_rows: int
    host_rows: int
    streamed: int = 0
    device_blocks: int | None = None
    host_blocks: int | None = None
    gemma: bool = False
    on_cpu: int = 0
    how: CpuHome = "cpu"
    mlps: bool = False
    passes: int = 0
    prompts_here: int = 0


CASES = {
    "gpu-only": Case("gpu-only", 8, 0),
    "windows": Case("gpu-only", 8, 0, gemma=True),
    "streamed": Case("gpu-only", 8, 0, streamed=LAYERS),
    "lent": Case("gpu-only", 8, 0, streamed=LAYERS, on_cpu=4, how="host"),
    "MLPs": Case("ride-along", 4, 4, on_cpu=3, how="cpu-mlp"),
    "MLPs lent": Case("gpu-only", 8, 0, streamed=LAYERS, on_cpu=2, how="host", mlps=True),
    "on the CPU": Case("ride-along", 4, 4, on_cpu=4, how="cpu"),
    "ride-along": Case("ride-along", 0, 8),
    "ride-along, windows": Case("ride-along", 0, 8, gemma=True),
    "ride-along, prompts here": Case("ride-along", 4, 4, device_blocks=26, prompts_here=2),
    "rendezvous": Case("rendezvous", 0, 8),
    "spilling": Case("ride-along", 6, 2, device_blocks=14, host_blocks=40),
    "spilling, rendezvous": Case("rendezvous", 6, 2, device_blocks=14, host_blocks=40),
    "preempting": Case("gpu-only", 8, 0, device_blocks=14),
}


def planned(
    case: Case, prompt: str = "100-300", generate: str = "5-90", requests: int = 30
) -> Planned:
    """The case as the planner would hand it over."""
    model = GEMMA if case.gemma else LLAMA
    question = ask(model, host="g5.4xlarge", prompt=prompt, generate=generate, requests=requests)
    search = Search(question)
    elsewhere = Elsewhere(case.streamed, case.on_cpu, case.how, mlps=case.mlps)
    rows = case.device_rows, case.host_rows
    candidate = candidate_of(
        case.strategy, elsewhere, *rows, case.passes, prompts_here=case.prompts_here
    )
    option = Option(candidate, search.predictor.predict(candidate))
    # other seeds draw other lengths
    plan = online_plan(search, option)
    plan = replace(plan, max_model_len=max(512, plan.max_model_len))
    if case.device_blocks is not None:
        plan = replace(plan, device_blocks=case.device_blocks)
    if case.host_blocks is not None:
        plan = replace(plan, host_blocks=case.host_blocks)
    return Planned(question, option, plan)


def in_steps(case: Case, strategy: str) -> Planned:
    """The case's pools under a strategy that chooses each step."""
    plan = planned(case, requests=12)
    return replace(plan, plan=stepped(plan.plan, strategy))


def workload(
    prompt: str = "100-300",
    generate: str = "5-90",
    requests: int = 30,
    rate: float | None = None,
    seed: int = 0,
) -> Workload:
    """Drawn requests."""
    lengths = parse_lengths(prompt, "prompt"), parse_lengths(generate, "generate")
    return drawn_workload(*lengths, requests, rate, seed)


@dataclass(frozen=True)
class Served:
    """A run that has ended, and all that was left of it."""

    machine: Machine
    record: Record
    outcome: Outcome


def serve(
    plan: Planned,
    requests: Workload,
    *,
    skip: bool = False,
    watch: Callable[[float, Scheduler], None] | None = None,
    on_span: Callable[[Span], None] | None = None,
    ttft_bound_s: float | None = None,
) -> Served:
    """Run to the end; `watch` is called after every step of the loop."""
    machine = build(plan, on_span=on_span, ttft_bound_s=ttft_bound_s, counted=skip)
    scheduler, executor, token = machine.scheduler, machine.executor, machine.token_id
    record = Record(requests.requests)
    windows = plan.question.model.layer_windows
    skipper = Skipper(scheduler, executor, record, token, windows) if skip else None
    loop = Loop(scheduler, executor, record, token, skipper)
    while loop.step():
        if watch is not None:
            watch(executor.now_s, scheduler)
    outcome = outcome_of_run(plan, machine, record, loop.skipped_steps, ttft_bound_s)
    return Served(machine, record, outcome)
