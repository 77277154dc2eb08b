"""What an engine will run on, and how large everything is: known before anything is loaded."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.devices.cpu import bound_threads
from tandem.engine.building.model_loading import (
    choose_types,
    device_kernel_notes,
    host_kernel_notes,
    with_usable_ends,
)
from tandem.engine.building.target import Target, resolve_target
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.context_length import model_for_length
from tandem.engine.sizing.expert_hits_file import check_writable
from tandem.engine.sizing.memory_plan import MemoryPlan, plan_memory
from tandem.engine.sizing.plan_options import planned_file
from tandem.engine.sizing.planned import plan_note, require_as_planned
from tandem.engine.sizing.target_rates import with_rates
from tandem.kernels import native
from tandem.kernels.open_pool import open_pool
from tandem.models.config import read_model_spec
from tandem.models.resolve import resolve_model
from tandem.plan.weights import PlacedWeights
from tandem.spec.config import EngineConfig
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool
    from tandem.plan.online import OnlinePlan


@dataclass(frozen=True, slots=True)
class Situation:
    """A model, a device, element types: what is known before anything is sized or loaded.

    Attributes:
        planned: what a file says that a user gave.
        capacities: of memory, and what this installation computes with.
        pool: of the CPU's threads, if it computes all; else None.
        notes: what people are told about all of it, one line each.
    """

    config: EngineConfig
    directory: Path
    spec: ModelSpec
    planned: "OnlinePlan | None"
    target: Target
    precision: Precision
    capacities: Capacities
    pool: "NativePool | None"
    notes: tuple[str, ...]

    def sized(
        self, measured_workspace: int | None = None, placed: PlacedWeights | None = None
    ) -> MemoryPlan:
        """How large everything is; see `plan_memory`."""
        return plan_memory(
            self.config, self.spec, self.precision, self.capacities, self.notes,
            measured_workspace, placed, self.target.hardware, self.planned,
        )  # fmt: skip


def situation_of(config: EngineConfig) -> Situation:
    """Find the model and the device, and choose element types.

    Raises:
        TandemError: there is no such model or device, or a flag is wrong for them.
    """
    thread_notes = bound_threads()
    directory = resolve_model(config.model)
    spec, eos_notes = with_usable_ends(read_model_spec(directory))
    planned = planned_file(config, spec)
    spec, length_notes = model_for_length(spec, config.max_model_len)
    target = resolve_target(config)
    if config.save_expert_hits is not None:
        check_writable(Path(config.save_expert_hits), spec)
    pool = open_pool() if target.device.type == "cpu" else None
    precision, precision_notes = choose_types(config, spec, target, directory, pool)
    lacking = device_kernel_notes(target.device)
    notes = eos_notes + length_notes + precision_notes
    notes += target.notes + thread_notes + host_kernel_notes(spec) + lacking
    if config.attention_backend != "auto":
        from tandem.engine.sizing.attention_choice import check_attention_backend

        check_attention_backend(config.attention_backend, spec, precision, target.device)
    if target.device.type == "cuda":
        from tandem.engine.sizing.attention_choice import prompt_notes

        notes += prompt_notes(config.attention_backend, spec, precision, target.device)
    if planned is not None:
        require_as_planned(planned, precision, target.choice)
        notes = (plan_note(str(config.plan), planned), *notes)
    compiled = native.reason_against(spec.head_dim) is None
    return Situation(
        config,
        directory,
        spec,
        None if planned is None else planned.online,
        target,
        precision,
        replace(target.capacities, compiled=compiled, experts_at_once=not lacking),
        pool,
        notes,
    )


def with_sizes(situation: Situation) -> tuple[Situation, MemoryPlan]:
    """How large everything is, by rates that are measured where the placement asks for them."""
    memory = situation.sized()
    config, directory = situation.config, situation.directory
    target, notes = with_rates(situation.target, config, memory.plan.weights, directory)
    if not notes:
        return situation, memory
    situation = replace(situation, target=target, notes=situation.notes + notes)
    return situation, situation.sized()
