"""What the GPU alone could do at most in an online cell, and what the host could add."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import Asked
from benchmarks.gpu.scale import CODE_MATHS, Scale
from benchmarks.gpu.stored import stored_profile

from tandem.engine.stats import EngineStats, TierStats
from tandem.probes.rounds import median_seconds
from tandem.probes.torch_accelerator import TorchAccelerator
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import lookup_parameters

_PROBE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class FullPool:
    """KV that is the limit of how many requests run on the GPU.

    Attributes:
        rows: that it holds. row_bytes: of each, in the mean. read_bytes_per_s: of KV, by the host.
    """

    rows: int
    row_bytes: float
    read_bytes_per_s: float


def full_pool(
    scale: Scale, stats: EngineStats, asked: Sequence[Asked], found: Findings
) -> FullPool | None:
    """The GPU's, filled by the job; None, and a note, where that says nothing."""
    tier = device_tier(stats)
    context = mean_context(asked)
    rows = rows_in(tier, context)
    if rows >= min(scale.rows, len(asked)):
        found.note("no bound of the gain: KV does not limit how many requests run on the GPU")
        return None
    try:
        profile = stored_profile()
    except ConfigError as error:
        found.note(f"no bound of the gain: {error}")
        return None
    row_bytes = context * tier.block_bytes / tier.block_size
    return FullPool(rows, row_bytes, profile.host.memory.read_bytes_per_s)


def rows_in(tier: TierStats, context: float) -> int:
    """Requests of so many tokens that a tier holds."""
    return tier.total_blocks // math.ceil(context / tier.block_size)


def mean_context(asked: Sequence[Asked]) -> float:
    """Tokens of a request halfway through its output."""
    return sum(len(each.prompt) + each.new_tokens / 2 for each in asked) / len(asked)


def bound_of(scale: Scale, spec: ModelSpec, stats: EngineStats, asked: Sequence[Asked]) -> float:
    """Tokens/s if decoding took nothing but reading: each step all weights, and the KV of as many
    requests as the pool holds or may run. Prompts are taken to cost nothing.
    """
    probed = TorchAccelerator(scale.probed(), CODE_MATHS)
    size = min(_PROBE_BYTES, probed.memory_bytes // 8)
    rate = 2 * size / median_seconds({"copy": probed.copying(size)}, 3)["copy"]
    tier = device_tier(stats)
    context = mean_context(asked)
    pool_tokens = tier.total_blocks * tier.block_size
    rows = max(1.0, min(scale.rows, len(asked), pool_tokens / context))
    weights = next(
        row.predicted_bytes
        for row in stats.memory
        if row.label == "weights" and row.location == "device"
    )
    weights -= lookup_parameters(spec) * scale.dtype.size_bytes
    kv_bytes = rows * context * tier.block_bytes / tier.block_size
    return rate * rows / (weights + kv_bytes)


def device_tier(stats: EngineStats) -> TierStats:
    """The pool on the GPU."""
    return next(tier for tier in stats.tiers if tier.tier == "device")
