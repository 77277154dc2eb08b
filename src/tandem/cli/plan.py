"""`tandem plan`: what a machine will do with a model, before anything is downloaded or loaded."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli.folded import print_folded
from tandem.cli.option_groups import grouped
from tandem.cli.planning import (
    read_question,
    read_workload,
    refuse_beside_trace,
    refuse_beside_workload,
    refuse_rate_of_one,
)
from tandem.cli.planning_options import (
    GoalOptions,
    MachineOptions,
    MemoryOptions,
    ModelName,
    PolicyName,
    RequestOptions,
    StepOptions,
)
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.cli.plan_hardware import PlanHardware
    from tandem.planner.answer import Answer
    from tandem.planner.cycle import Cycle
    from tandem.planner.question import Question
    from tandem.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What is allowed, and what a plan is compared with."""

    offline: Annotated[
        bool,
        typer.Option("--offline", help="For a batch job: blocks of batches, highest throughput."),
    ] = False
    pinned_memory: Annotated[
        str | None,
        typer.Option(help="Of host memory, what --offline may pin at most.", metavar="SIZE"),
    ] = None
    order: Annotated[
        str,
        typer.Option(
            help="How --offline runs batches: rows (each by itself), columns (several, for which "
            "weights come once), or auto, as is faster."
        ),
    ] = "auto"
    policy: PolicyName = "auto"
    compare_policies: Annotated[
        bool, typer.Option("--compare-policies", help="Also what each policy would do.")
    ] = False
    robust: Annotated[
        bool,
        typer.Option(
            "--robustness", help="Also what becomes of the plan if numbers are off by 15%."
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What is written and shown."""

    output: Annotated[
        Path | None,
        typer.Option(help="Write the plan, for an engine's --plan.", metavar="FILE"),
    ] = None
    gantt: Annotated[
        bool, typer.Option("--gantt", help="Also one decode cycle, queue by queue.")
    ] = False
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw memory and one decode cycle into a PNG.", metavar="FILE"),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False

    @property
    def draws(self) -> bool:
        """Whether a decode cycle is to be shown."""
        return self.gantt or self.plot is not None

    @property
    def writes(self) -> bool:
        """Whether something goes into a file."""
        return self.output is not None or self.plot is not None


@grouped
def plan(
    context: typer.Context,
    *,
    model: ModelName,
    machine: MachineOptions,
    requested: RequestOptions,
    goal: GoalOptions,
    memory: MemoryOptions,
    steps: StepOptions,
    policies: PolicyOptions,
    shown: OutputOptions,
) -> None:
    """Predict what a machine will do with a model.

    Its placement, speed and limits; the machine need not be there.
    """
    from tandem.cli.uncollected import uncollected

    asked = context, model, machine, requested, goal, memory, steps
    with uncollected():
        _plan(*asked, policies, shown)


def _plan(
    context: typer.Context,
    model: str,
    machine: MachineOptions,
    requested: RequestOptions,
    goal: GoalOptions,
    memory: MemoryOptions,
    steps: StepOptions,
    policies: PolicyOptions,
    shown: OutputOptions,
) -> None:
    from tandem.cli.plan_hardware import asked_hardware
    from tandem.cli.usual_type import with_usual_type

    _refuse_contradictions(context, requested, goal, policies, shown)
    workload = read_workload(requested, model)
    hardware = asked_hardware(machine)
    memory, typed = with_usual_type(memory, model, hardware)
    hardware = hardware.saying(*typed)
    _refuse_cycle_of_host(hardware, shown)
    question = read_question(
        model,
        hardware,
        workload,
        memory,
        steps,
        goal,
        in_blocks=policies.offline,
        pinned_memory=policies.pinned_memory,
    )
    if policies.offline:
        _offline(model, workload, question, hardware, policies, memory.quantization, shown)
        return
    from tandem.cli.children import Children
    from tandem.planner import native
    from tandem.planner.answer import answer

    if not native.available():
        from tandem.cli.terminal import tell_notes

        tell_notes([native.unavailable_message()])
    from tandem.cli.plan_printing import PlanPrinting, though_unread

    asked = question, policies.policy, policies.compare_policies, policies.robust
    printing = PlanPrinting(model, workload, hardware.basis)
    tell = though_unread(printing.plan) if shown.writes else printing.plan
    with Children() as children:
        found = answer(*asked, children, None if shown.as_json else tell)
    if shown.output is not None:
        from tandem.plan.plan_file import write_plan
        from tandem.planner.plan_file import plan_file

        write_plan(shown.output, plan_file(model, question, found.plan, memory.quantization))
    cycle: Cycle | None = None
    if shown.draws:
        from tandem.planner.cycle import decode_cycle

        cycle = decode_cycle(found.question, found.chosen.candidate)
    if cycle is not None and shown.plot is not None:
        from tandem.cli.plan_plot import online_tiers, plot_plan

        title = f"{model}\n{question.hardware.name}"
        plot_plan(title, online_tiers(found), cycle, shown.plot, "one decode cycle")
    drawn = cycle if shown.gantt else None
    if shown.as_json:
        _print_json(model, workload, found, hardware, drawn)
        return
    printing.beside(found, _flags(memory, steps), shown.output)
    if drawn is not None:
        from tandem.cli.plan_gantt import gantt_text

        print_folded(["", *gantt_text(drawn)])


def _refuse_contradictions(
    context: typer.Context,
    requested: RequestOptions,
    goal: GoalOptions,
    policies: PolicyOptions,
    shown: OutputOptions,
) -> None:
    """Options that mean nothing beside each other.

    Raises:
        ConfigError: two of them, or a picture that cannot be drawn.
    """
    if policies.offline:
        _refuse_beside_offline(requested, goal)
    refuse_rate_of_one(goal, None if requested.rate is None else "--rate")
    if policies.pinned_memory is not None and not policies.offline:
        raise ConfigError(
            "--pinned-memory bounds what a plan of a batch job pins; use it with --offline, or "
            "leave it out",
            param="pinned_memory",
        )
    if policies.order != "auto" and not policies.offline:
        raise ConfigError(
            "--order is that of a batch job's batches; use it with --offline, or leave it out",
            param="order",
        )
    if shown.output is not None:
        _check_output(shown.output)
    if shown.plot is not None:
        from tandem.bench.picture import check_plot

        check_plot(shown.plot)
    if requested.trace is not None:
        refuse_beside_trace(context, seeds=requested.rate is not None)
    if requested.workload is not None:
        refuse_beside_workload(context)


def _offline(
    model: str,
    workload: "Workload",
    question: "Question",
    hardware: "PlanHardware",
    policies: PolicyOptions,
    quantization: str,
    shown: OutputOptions,
) -> None:
    """Plan a batch job; write, draw and print what was asked for."""
    from tandem.cli.children import Children
    from tandem.cli.plan_offline import OfflinePrinting
    from tandem.cli.plan_printing import though_unread
    from tandem.planner.offline.answer import offline_answer
    from tandem.planner.offline.cycle import pass_cycle
    from tandem.planner.plan_file import offline_plan_file

    asked = question, policies.policy, policies.compare_policies, policies.robust
    printing = OfflinePrinting(model, workload, hardware.basis)
    tell = though_unread(printing.plan) if shown.writes else printing.plan
    with Children() as children:
        planned = offline_answer(*asked, policies.order, children, None if shown.as_json else tell)
    if shown.output is not None:
        from tandem.plan.plan_file import write_plan

        file = offline_plan_file(model, question, planned.plan, quantization)
        write_plan(shown.output, file)
    cycle = pass_cycle(planned.question, planned.chosen.candidate) if shown.draws else None
    if cycle is not None and shown.plot is not None:
        from tandem.cli.plan_plot import offline_tiers, plot_plan

        title = f"{model}\n{question.hardware.name}"
        plot_plan(title, offline_tiers(planned), cycle, shown.plot, "one pass over a block")
    drawn = cycle if shown.gantt else None
    if shown.as_json:
        printing.whole(planned, drawn)
    else:
        printing.beside(planned, shown.output, drawn)


def _refuse_beside_offline(requested: RequestOptions, goal: GoalOptions) -> None:
    from tandem.cli.plan_offline import refuse_online_flags

    refuse_online_flags(
        rate=requested.rate,
        tpot_bound=goal.tpot_bound,
        objective=goal.objective != "throughput",
    )


def _refuse_cycle_of_host(hardware: "PlanHardware", shown: OutputOptions) -> None:
    if hardware.host_only and shown.draws:
        raise ConfigError(
            "--gantt and --plot show how an accelerator and its host work side by side; on the "
            "host alone everything runs in one queue: leave them out",
            param="gantt",
        )


def _print_json(
    model: str,
    workload: "Workload",
    found: "Answer",
    hardware: "PlanHardware",
    cycle: "Cycle | None",
) -> None:
    from tandem.cli.plan_json import answer_json

    drawn: dict[str, Any] = {}
    if cycle is not None:
        from tandem.cli.plan_gantt import cycle_json

        drawn["decode_cycle"] = cycle_json(cycle)
    print(json.dumps({**answer_json(model, workload, found, hardware.basis), **drawn}))


def _flags(memory: MemoryOptions, steps: StepOptions) -> tuple[str, ...]:
    """An engine's flags for what was given and is not its default."""
    from tandem.spec.config import EngineConfig

    given = {
        "dtype": memory.dtype,
        "kv_cache_dtype": memory.kv_cache_dtype,
        "quantization": memory.quantization,
        "block_size": steps.block_size,
        "gpu_memory": memory.gpu_memory,
        "cpu_memory": memory.cpu_memory,
    }
    defaults = {field.name: field.default for field in fields(EngineConfig)}
    words: list[str] = []
    for name, value in given.items():
        if value != defaults[name]:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(words)


def _check_output(path: Path) -> None:
    """Before anything is planned; raises ConfigError for a place that is none."""
    if not path.parent.is_dir() or path.is_dir():
        reason = "it is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise ConfigError(f"cannot write {path}: {reason}; name another file", param="output")
