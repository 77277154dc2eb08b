"""The type that a model is planned in where none is named."""

from dataclasses import replace
from typing import TYPE_CHECKING

from tandem.cli.planning_options import MemoryOptions

if TYPE_CHECKING:
    from tandem.cli.plan_hardware import PlanHardware

SLOW = 2.0
"""How many times as fast another type is where that is said, or chosen."""


def with_usual_type(
    memory: MemoryOptions, model: str, hardware: "PlanHardware"
) -> tuple[MemoryOptions, tuple[str, ...]]:
    """In the checkpoint's type; in float16 where that is bfloat16 and an accelerator, described or
    measured, has no units for it, as a T4: its time is several times as long there, for the same
    bytes. Engines go by the GPU's generation (`engine.sizing.precision_choice`).

    Returns: the options, and lines that say so, if there is something to say.
    """
    from tandem.models.catalogue import plannable_spec
    from tandem.spec.dtype import DType
    from tandem.spec.float_range import needs_range

    if memory.dtype != "auto" or hardware.host_only:
        return memory, ()
    peaks, spec = hardware.spec.accelerator.flops_per_s, plannable_spec(model)
    if spec.dtype is not DType.BFLOAT16 or not {DType.FLOAT16, DType.BFLOAT16} <= peaks.keys():
        return memory, ()
    ratio = peaks[DType.FLOAT16] / peaks[DType.BFLOAT16]
    if ratio <= SLOW or needs_range(spec):
        return memory, ()
    notes = (
        f"Planned in float16: this machine computes {ratio:.1f} times as fast in it as in the "
        "checkpoint's bfloat16, which --dtype bfloat16 keeps",
        "An engine takes float16 from the plan's file, and by itself on such a GPU; an emulated "
        "accelerator executes float32 alone: plan with --dtype float32 for it",
    )
    return replace(memory, dtype=str(DType.FLOAT16)), notes
