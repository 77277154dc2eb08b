"""What an engine takes of the host's memory beside what `--cpu-memory` bounds. Pure."""

from tandem.engine.sizing.capacities import Capacities
from tandem.memory.page import KVPageSpec
from tandem.memory.scratch import (
    LIBRARY_BYTES,
    PINNED_BYTES,
    PINNED_LAYERS_BYTES,
    kept_bytes,
    torch_attention_bytes,
)
from tandem.memory.workspace import LargestStep, StepMemory
from tandem.plan.sweep_layers import SweepChoice
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec


def process_overheads(
    capacities: Capacities,
    spec: ModelSpec,
    page: KVPageSpec,
    step: LargestStep,
    context: int,
    workspace: int,
) -> dict[str, int]:
    """What the process takes whatever the placement: what is there already, libraries, what the
    C library keeps, and what attention by torch takes or the compiled layers keep.

    Args:
        context: tokens of the longest request.
        workspace: bytes of a step's activations where the maths is done.
    """
    in_process = capacities.device_location == "host" or not capacities.real
    sizes = {
        "process": capacities.process_bytes,
        "libraries": LIBRARY_BYTES,
        "kept by malloc": kept_bytes(workspace if in_process else 0),
    }
    torch_bytes = torch_attention_bytes(spec, page, step.tokens, context)
    if capacities.device_location == "device" and not capacities.real:
        sizes["emulation"] = torch_bytes  # the accelerator's own kernels
    elif not capacities.compiled:
        sizes["attention scratch"] = torch_bytes
    elif capacities.device_location == "host":
        sizes["kernel buffers"] = StepMemory(spec, DType.FLOAT32).kept_buffers_bytes(step)
    return sizes


def staging_overheads(
    spec: ModelSpec, dtype: DType, step: LargestStep, sweeps: SweepChoice
) -> dict[str, int]:
    """What the host's part of a step takes beside an accelerator: activations on their way, and
    layers' scratch.

    Args:
        sweeps: in which of them the CPU computes layers, or their MLPs.
    """
    memory = StepMemory(spec, dtype)
    per_token = memory.qkv_token_bytes + memory.partial_token_bytes
    tokens = step.tokens + step.cohort_tokens
    sizes = {"staging": tokens * per_token}
    if step.device_type == "cuda":
        sizes["staging"] += PINNED_BYTES
    cpu_tokens = tokens if sweeps.cpu_tokens is None else sweeps.cpu_tokens
    mlp_tokens = tokens if sweeps.cpu_mlp_tokens is None else sweeps.cpu_mlp_tokens
    if cpu_tokens or mlp_tokens:
        if step.device_type == "cuda":
            sizes["staging"] += PINNED_LAYERS_BYTES
        layers = StepMemory(spec, DType.FLOAT32)
        held = layers.token_bytes + layers.qkv_token_bytes + layers.partial_token_bytes
        sizes["staging"] += max(
            cpu_tokens * held, mlp_tokens * (layers.token_bytes + layers.routed_token_bytes)
        )
        scratch = max(layers.pre_token_bytes, layers.post_token_bytes)
        sizes["cpu layer scratch"] = max(cpu_tokens * scratch, mlp_tokens * layers.post_token_bytes)
    return sizes
