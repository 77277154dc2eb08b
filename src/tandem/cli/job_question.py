"""What the planner is asked of a batch job on the machine that its engine will run on."""

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.cli.plan_hardware import MEASURED, PlanHardware, plan_hardware
from tandem.cli.planning import read_question
from tandem.cli.planning_options import GoalOptions, MemoryOptions, StepOptions
from tandem.cli.usual_type import with_usual_type
from tandem.memory.host_default import fillable_host_bytes
from tandem.memory.peaks import read_host_memory
from tandem.spec.accelerator import parse_accelerator
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.engine.building.target import Target
    from tandem.planner.question import Question
    from tandem.spec.config import EngineConfig
    from tandem.spec.workload import Workload

_EMULATED = "predicted for the machine that is emulated; emulating it takes longer"


@dataclass(frozen=True, slots=True)
class JobMachine:
    """What a job's engine will run on.

    Attributes:
        emulated: memory and device of its emulation; None: it is this machine, as it was measured.
    """

    hardware: PlanHardware
    emulated: "Target | None" = None


def job_machine(config: "EngineConfig") -> JobMachine:
    """The machine to plan for.

    Raises:
        ConfigError: there is no accelerator, or this machine was not measured.
    """
    kind = parse_accelerator(config.accelerator).kind
    if kind == "emulated":
        from tandem.engine.building.target import resolve_target

        target = resolve_target(config)
        assert target.hardware is not None
        return JobMachine(PlanHardware(target.hardware, False, None, (_EMULATED,)), target)
    if kind == "none" or (kind == "auto" and not _has_gpu()):
        raise ConfigError(
            "--plan auto plans what an accelerator and its host do together, and here is none; "
            "leave it out",
            param="plan",
        )
    return JobMachine(plan_hardware(MEASURED, MEASURED, None))


def job_question(config: "EngineConfig", machine: JobMachine, workload: "Workload") -> "Question":
    """What the planner is asked.

    Raises:
        ConfigError: an option is wrong for the model or the machine.
    """
    if machine.emulated is None:
        return _of_measured(config, workload, machine.hardware)
    return _of_emulated(config, workload, machine.hardware, machine.emulated)


def _has_gpu() -> bool:
    """Found out without the driver, which would take memory of the GPU's for good."""
    from tandem.devices.this_machine import this_machine

    return this_machine(os.environ).accelerator != "none"


def _of_measured(
    config: "EngineConfig", workload: "Workload", hardware: PlanHardware
) -> "Question":
    memory = MemoryOptions(
        config.gpu_memory,
        config.cpu_memory,
        config.dtype,
        config.kv_cache_dtype,
        config.quantization,
    )
    memory, _ = with_usual_type(memory, config.model, hardware)
    question = _question(config, workload, hardware, memory)
    if config.cpu_memory == "auto":
        free = fillable_host_bytes(read_host_memory().available_bytes)
        question = replace(question, host_bytes=min(question.host_bytes, free))
    return question


def _of_emulated(
    config: "EngineConfig", workload: "Workload", hardware: PlanHardware, target: "Target"
) -> "Question":
    """Memory and types are as its engine has them: in this host's memory, as the CPU computes."""
    from tandem.engine.building.model_loading import choose_types
    from tandem.kernels.open_pool import open_pool
    from tandem.models.config import read_model_spec
    from tandem.models.resolve import resolve_model

    question = _question(config, workload, hardware, MemoryOptions())
    directory = resolve_model(config.model)
    spec = read_model_spec(directory)
    precision, _ = choose_types(config, spec, target, directory, open_pool(), in_blocks=True)
    return replace(
        question,
        precision=precision,
        device_bytes=target.capacities.device_bytes,
        host_bytes=_emulated_host_bytes(config, target, question),
    )


def _emulated_host_bytes(config: "EngineConfig", target: "Target", question: "Question") -> int:
    """As asked for; else what the described host has, as far as there is room for it here."""
    if config.cpu_memory != "auto":
        return target.capacities.host_bytes
    left = target.host.available_bytes - target.capacities.device_bytes
    return min(question.host_bytes, fillable_host_bytes(max(0, left)))


def _question(
    config: "EngineConfig", workload: "Workload", hardware: PlanHardware, memory: MemoryOptions
) -> "Question":
    steps = StepOptions(config.max_num_batched_tokens, config.block_size)
    return read_question(
        config.model,
        hardware,
        workload,
        memory,
        steps,
        GoalOptions(),
        in_blocks=True,
        pinned_memory=config.pinned_memory,
    )
