"""Engines of a cell whose requests a GPU does not hold at once, and what their rows are called."""

from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.cells import OnlineCell
from benchmarks.gpu.jobs import ModelFolder, config_for
from benchmarks.gpu.kept import ALONE
from benchmarks.gpu.opened import Opened, opened, with_kv_of
from benchmarks.gpu.scale import Scale

from tandem.plan.executed_op import OpListener
from tandem.spec.config import EngineConfig
from tandem.spec.units import format_size

HYBRID_ROWS = 2
"""Times those of the GPU's: as many may keep their KV on the host."""
_ALONE_HOST_BYTES = 2 << 30  # for embeddings at most: more would only take time to pin


def part_name(cell: OnlineCell) -> str:
    """Of the record of what has a target."""
    return f"online-{cell.name}"


def engine_of(
    cell: OnlineCell,
    scale: Scale,
    model: ModelFolder,
    strategy: str,
    listeners: Sequence[OpListener] = (),
) -> Opened:
    """One strategy's, warmed up.

    Raises:
        TandemError: it cannot run so.
    """
    return opened(config_of(cell, scale, model, strategy), listeners)


def config_of(cell: OnlineCell, scale: Scale, model: ModelFolder, strategy: str) -> EngineConfig:
    """As much memory, by one strategy; the GPU alone has little of the host's."""
    options: dict[str, Any] = {"quantization": cell.quantization, "strategy": strategy}
    host_bytes = min(scale.online_host_bytes, _ALONE_HOST_BYTES)
    if strategy != ALONE:
        rows, host_bytes = scale.rows * HYBRID_ROWS, scale.online_host_bytes
        options |= {"max_num_seqs": rows, "max_host_seqs": rows}
    options["cpu_memory"] = str(host_bytes)
    config = config_for(scale, model.path, cell.memory_bytes, options)
    return with_kv_of(config, cell.kv_bytes) if cell.kv_bytes else config


def case_of(cell: OnlineCell, scale: Scale, requests: int | None = None) -> str:
    """What rows say of the cell; of a job of fewer requests than all, how many."""
    weights = str(scale.dtype) if cell.quantization == "none" else cell.quantization
    return (
        f"{cell.shape.name}, {weights}, {_memory(cell)}; "
        f"{requests or scale.requests} requests, {scale.prompt_tokens} tokens in, "
        f"{scale.new_tokens} out"
    )


def _memory(cell: OnlineCell) -> str:
    if cell.kv_bytes:
        return f"{format_size(cell.kv_bytes)} of device memory for KV, all else uncapped"
    return f"{format_size(cell.memory_bytes)} of device memory"
