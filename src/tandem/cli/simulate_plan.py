"""A plan from a file as what is simulated."""

from dataclasses import fields
from pathlib import Path

import typer

from tandem.cli.flags import was_given
from tandem.cli.plan_hardware import PlanHardware
from tandem.cli.planning_options import MemoryOptions, StepOptions
from tandem.engine.sizing.planned import not_executable, require_model
from tandem.models.catalogue import plannable_spec
from tandem.plan.plan_file import PlanFile, read_plan
from tandem.plan.weights import disk_layers
from tandem.planner.question import Question
from tandem.simulator.build import Planned
from tandem.spec.errors import ConfigError

_DECIDED = (
    "strategy", "policy", *(each.name for each in (*fields(MemoryOptions), *fields(StepOptions))),
)  # fmt: skip


def refuse_beside_plan(context: typer.Context) -> None:
    """A plan has decided where everything goes, and in which types.

    Raises:
        ConfigError: an option says it, too.
    """
    for name in _DECIDED:
        if was_given(context, name):
            raise ConfigError(
                f"--{name.replace('_', '-')} has no meaning beside --plan, which has decided it; "
                "leave it out, or plan anew",
                param=name,
            )


def plan_of(path: Path, model: str, hardware: PlanHardware) -> PlanFile:
    """The plan in a file, which must be one for requests as they come, of this model and machine.

    Raises:
        ConfigError: no such plan; says what is otherwise.
    """
    file = read_plan(path)
    if file.is_for_blocks:
        raise not_executable(
            "it is of a batch job, and what is simulated are requests as they come; plan without "
            "--offline"
        )
    require_model(file, plannable_spec(model))
    if file.host_only and not hardware.host_only:
        raise not_executable(
            "it is for a host alone, and what is simulated is an accelerator beside one; name the "
            "host by --accelerator none --host, or plan for an accelerator"
        )
    if file.hardware != hardware.spec.name:
        raise not_executable(
            f"it is for {file.hardware}, not for {hardware.spec.name}; name that machine by "
            "--accelerator and --host, or plan for this one"
        )
    return file


def sizes_of(file: PlanFile) -> tuple[MemoryOptions, StepOptions]:
    """Types of what the plan holds, and sizes of its steps and blocks."""
    plan = file.online
    memory = MemoryOptions(
        dtype=file.dtype, kv_cache_dtype=file.kv_cache_dtype, quantization=file.quantization
    )
    return memory, StepOptions(plan.max_num_batched_tokens, plan.block_size)


def planned_by(file: PlanFile, question: Question) -> Planned:
    """The plan, and what it is to serve.

    Raises:
        ConfigError: its types are not what the question's come to, or a request is longer than it
            has room for.
    """
    if file.precision != str(question.precision):
        raise not_executable(
            f"it is for {file.precision}, and this model comes to {question.precision}; plan anew"
        )
    plan, longest = file.online, question.lengths.longest_tokens
    if disk_layers(plan.weights) and question.hardware.host.disk_bytes_per_s is None:
        raise not_executable("it reads layers from disk, whose rate is not known; say it by --disk")
    if longest > plan.max_model_len:
        raise not_executable(
            f"it has room for requests of {plan.max_model_len} tokens, and the longest has "
            f"{longest}; shorten --prompt or --generate, or plan for these"
        )
    return Planned(question, None, plan)
