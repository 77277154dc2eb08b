"""What sweeps of a range of rows take and have room for, however layers and KV are shared out."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.passing import LEAST_PROMPTS_HERE
from tandem.planner.relaxation.attention_shares import Carried
from tandem.planner.relaxation.mean_rows import beyond
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.sweep_kinds import SweepKind
from tandem.planner.relaxation.way import Way

LEFT_OUT = 1e-9  # of a layer, where a number of them is asked for
_ROUNDED_UP = 1 + 1e-9

FixedKey = tuple[Way, tuple[int, int, float], bool, int]
"""All that fixed costs hang on, which parts of a range have in common: a way, the fewest rows that
pass through all layers and in cohorts, those that decode, and what the kind of sweep does.
"""


class FixedCosts(NamedTuple):
    """Of one kind of sweep.

    Attributes:
        alone_s: of a cohort that goes alone, through one layer or in its own passes; None: of a
            sweep through all layers.
        around_s: of that, before, after and between the layers' own stages.
        beside_s: on the accelerator, of a cohort's own passes and the attention beside them; None:
            it has none.
        cpu_s: on the CPU, of cohorts. dram_bytes: likewise, in the host's memory.
    """

    alone_s: float | None
    around_s: float
    beside_s: float | None
    cpu_s: float
    dram_bytes: float


def fixed_costs(prices: Prices, way: Way, rows: Rows, kind: SweepKind) -> FixedCosts:
    """Of the fewest rows in the ranges; the same wherever prompts are read."""
    anywhere = way
    if way.reads_here or way.reads_anywhere:
        anywhere = way._replace(reads_here=False, reads_anywhere=False)
    fewest = rows.through.least, rows.cohort.least, prices.decoding(rows)
    key = anywhere, fewest, kind.decodes, kind.prompt_tokens
    found = prices.fixed_costs.get(key)
    if found is None:
        found = prices.fixed_costs[key] = _find(prices, anywhere, rows, kind)
    return found


def _find(prices: Prices, way: Way, rows: Rows, kind: SweepKind) -> FixedCosts:
    tokens = sweep_tokens(prices, rows, kind)
    cohort = prices.advancing(way, rows.cohort.least) if kind.decodes else 0
    cpu_s, dram_bytes = prices.cohort_s(way, cohort), prices.cohort_bytes(way, cohort)
    if way.alone and not tokens:
        alone_s = (
            prices.beside_passes_s(way, 0, cohort)
            if way.halves
            else prices.one_layer_s(way, cohort)
        )
        return FixedCosts(alone_s, 0.0, None, cpu_s, dram_bytes)
    logits = tokens - kind.prompt_tokens + bool(kind.prompt_tokens)
    around_s = prices.ends_s(tokens, logits) + prices.layer.dense_s(tokens)
    around_s += prices.sharing_s(way, tokens, cohort)
    beside_s = None
    if way.passes and cohort:
        beside_s = prices.beside_passes_s(way, prices.decoding(rows), cohort)
    return FixedCosts(None, around_s, beside_s, cpu_s, dram_bytes)


def sweep_tokens(prices: Prices, rows: Rows, kind: SweepKind) -> int:
    """That pass through all layers, of the fewest rows; some of their places read prompts. If there
    are any rows, one is left: nothing else passes through.
    """
    tokens = (math.floor(prices.decoding(rows)) if kind.decodes else 0) + kind.prompt_tokens
    return max(tokens, min(1, rows.through.least))


def room_bytes(prices: Prices, way: Way, rows: Rows) -> tuple[float, float]:
    """On the accelerator and on the host, for layers, with all KV of rows that pass through all
    layers on the accelerator.
    """
    question, footprint = prices.question, prices.footprint
    through, cohort = rows.through.least, rows.cohort.least
    fixed = prices.fixed_bytes(way, through, cohort, rows.step_tokens)
    if way.reads_here:
        fixed += footprint.held.passing(LEAST_PROMPTS_HERE) * footprint.block_bytes
    read = footprint.disk_slots_bytes if way.reads else 0
    on_device, on_host = (read, 0) if question.host_only else (0, read)
    in_mean = way.splits_kv or prices.rows_vary
    held = prices.row_bytes * through if in_mean else prices.held_bytes(through, rows)
    return (
        question.device_bytes - fixed - on_device - held,
        question.host_bytes - on_host - prices.held_bytes(cohort, rows),
    )


def least_slotted(prices: Prices, way: Way) -> int:
    """Layers that must go through slots; 0: there need be none."""
    if not way.streams or way.shares_mixtures:
        return 0
    every = prices.question.movable_layers if way.all_streamed else 0
    return max(STREAM_SLOTS + 1, every)


def carried_by(prices: Prices, way: Way, rows: Rows, kind: SweepKind) -> Carried:
    """What a kind of sweep brings to attention."""
    most: float | None = None
    if way.reads_anywhere:
        most = 1.0
    elif way.has_cohort:
        through = rows.through.most + beyond(prices, way, rows)
        most = through / prices.served(way, through, rows.cohort.least)
    only_device = way.strategy == "gpu-only"
    return Carried(
        rows=prices.decoding(rows) if kind.decodes else 0.0,
        prompt_tokens=kind.prompt_tokens,
        host_always=way.strategy == "ride-along",
        prompts_on_device=most,
        all_here=only_device or way.reads_here,
        only_device=only_device,
    )


def token_weights(
    prices: Prices, way: Way, rows: Rows, kinds: Sequence[SweepKind]
) -> tuple[list[float], list[float]]:
    """Of the kinds' times, two ways, in the time per output token, which is no less than either:
    the kinds of sweeps for the least rows over the tokens of the most, and each kind's least number
    per token.
    """
    question, lengths = prices.question, prices.question.lengths
    served, per_output = 1.0, 1 / lengths.generated_tokens
    if question.objective == "throughput":
        served = prices.span(way, rows).most_served
        per_output *= lengths.decode_sweeps
    return (
        [kind.share / served * per_output for kind in kinds],
        [kind.per_served * per_output for kind in kinds],
    )


def most_sweep_s(prices: Prices, way: Way) -> float | None:
    """That a sweep may take in the mean, for what a request sees per token; None: any."""
    bound_s = prices.question.tpot_bound_s
    return None if bound_s is None else bound_s / prices.sweeps_per_token(way) * _ROUNDED_UP
