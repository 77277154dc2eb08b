"""Accelerator memory of a block's passes and prompts beside weights, pages and slots (ADR 0026).

Planner and engine take the same sums, so that what one plans the other has room for.
"""

from dataclasses import dataclass

from tandem.memory.workspace import KERNEL_SCRATCH_BYTES, LargestStep, StepMemory

_INDEX_BYTES = 8
_STATE_SLOTS = 2
"""Parts of prompts on the accelerator at once where activations wait on the host."""


@dataclass(frozen=True, slots=True)
class BlockStep:
    """What a block holds at once.

    Attributes:
        tokens: of prompts that are computed at once. rows: of a batch. block_rows: of all batches.
        made_tokens: whose keys and values are made anew at once.
        attends_on_cpu: of some rows.
        prompts_on_host: between layers, activations of prompts lie there.
        real: on a card, whose kernels need room of their own.
        divides: MLPs are computed on both sides in passes, of which all batches may have one part
            made and the other one come, and in two parts over prompts.
    """

    tokens: int
    rows: int
    block_rows: int
    made_tokens: int
    attends_on_cpu: bool
    prompts_on_host: bool
    real: bool
    divides: bool = False


def block_step_bytes(memory: StepMemory, step: BlockStep) -> int:
    """Of one operation after the other, and what batches keep from one to the next."""
    largest = LargestStep(
        tokens=step.tokens,
        rows=step.rows,
        tiers=2 if step.attends_on_cpu else 1,
        device_type="cuda" if step.real else "cpu",
    )
    kept = memory.token_bytes + memory.qkv_token_bytes + 2 * memory.partial_token_bytes
    size = memory.largest_bytes(largest) + step.block_rows * (kept + _INDEX_BYTES)
    size += step.made_tokens * memory.pre_token_bytes
    if step.divides:
        size += (step.tokens + 2 * step.block_rows) * memory.branch_token_bytes
    if step.prompts_on_host:
        size += _STATE_SLOTS * step.tokens * memory.token_bytes
    return size + (KERNEL_SCRATCH_BYTES if step.real else 0)


@dataclass(frozen=True, slots=True)
class CpuStepBytes:
    """Host memory of a token whose layers, or MLPs, the CPU computes.

    Attributes:
        held: of each sequence of a block. scratch: of a batch, while a stage works.
    """

    held: int
    scratch: int

    @staticmethod
    def of(memory: StepMemory, *, whole: bool, divided: bool = False) -> "CpuStepBytes":
        """Of float32 activations.

        Args:
            whole: layers, not only MLPs: also queries, keys, values and attention's result.
            divided: of such, columns of the MLPs: also their sum, and the accelerator's.
        """
        held = memory.token_bytes + memory.routed_token_bytes
        if not whole:
            return CpuStepBytes(held, memory.post_token_bytes)
        between = memory.token_bytes + memory.qkv_token_bytes + memory.partial_token_bytes
        scratch = max(memory.pre_token_bytes, memory.post_token_bytes)
        sums = 2 * memory.branch_token_bytes if divided else 0
        return CpuStepBytes(max(held, between) + sums, scratch)
