"""What an engine tells about itself."""

from dataclasses import dataclass

from tandem.cost.hand_overs import HandOvers
from tandem.cost.prediction_ratios import PredictionRatios
from tandem.memory.ledger import LocationTotals
from tandem.memory.prefix_cache import DiskStats, PrefixStats
from tandem.runtime.measures import OverlapTotals


@dataclass(frozen=True, slots=True)
class TierStats:
    """KV blocks of one tier now, and the most ever held; `block_size` is in tokens.

    Attributes:
        location: memory that the tier lies in; without an accelerator, `device` lies in `host`.
    """

    tier: str
    location: str
    total_blocks: int
    free_blocks: int
    held_blocks: int
    leased_blocks: int
    in_transfer_blocks: int
    cached_blocks: int
    peak_held_blocks: int
    block_bytes: int
    block_size: int


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One line of the memory ledger."""

    location: str
    label: str
    predicted_bytes: int
    actual_bytes: int | None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since start, gauges of now; plain values only.

    Attributes:
        accelerator: what the programs run on, in words.
        host_attention_tokens: query tokens whose attention ran (in part) on the host.
        ways: steps by what the strategy calls its choice, or by the strategy that has only one.
        mixed_returns: preempted requests that came back computed again at their beginning, and
            copied behind it.
        cohort_joins, cohort_waits: joins that happened, and that found the cohort not ready.
        prefix: what the prefix cache was asked for, found and did.
        disk: what it did with the disk; None without one.
        scheduler_time_s: time spent choosing and compiling steps, and taking in their events.
        overlap: how accelerator and CPU worked beside each other since start, and recent_overlap
            in the latest steps; None without an accelerator, or where times mean nothing.
        prediction: what predicted times were worth; None without `--calibrate`.
        hand_overs: what steps with a part on the host were found to take beyond predictions; None
            but under strategy `auto` where times are known.
        memory, memory_totals: the ledger: who takes what; each memory's peak, by the word of the
            device's driver or, of this process since it began to load, the kernel, and how much
            it grew after the warm-up.
        pinned_bytes: host memory locked for an accelerator's copies: weights that come, KV,
            activations; without staging buffers, of which the ledger tells.
        expert_hits: by layer, how often tokens went to each expert; empty for models without, and
            where tokens are synthetic. Rows that pad a graph count as tokens.
        notes: decisions made for the user, one line each.
    """

    accelerator: str
    strategy: str
    dtype: str
    max_model_len: int
    num_running: int
    num_waiting: int
    num_steps: int
    ways: dict[str, int]
    prompt_tokens: int
    generated_tokens: int
    cached_prompt_tokens: int
    preemptions: int
    mixed_returns: int
    transfers: int
    device_attention_tokens: int
    host_attention_tokens: int
    cohort_joins: int
    cohort_waits: int
    prefix: PrefixStats
    disk: DiskStats | None
    scheduler_time_s: float
    overlap: OverlapTotals | None
    recent_overlap: OverlapTotals | None
    prediction: PredictionRatios | None
    hand_overs: HandOvers | None
    tiers: tuple[TierStats, ...]
    memory: tuple[MemoryRow, ...]
    memory_totals: tuple[LocationTotals, ...]
    peak_device_bytes: int
    pinned_bytes: int
    peak_host_bytes: int
    expert_hits: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
