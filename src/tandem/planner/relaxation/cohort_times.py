"""What a range of rows in cohorts takes at least, without a programme.

Beside cohorts, layers stay on the accelerator or come to it in one way, and nobody's KV has a
choice of tiers but that of prompts which are read. So few layers come as memory allows, since more
make nothing shorter; and how much of the prompts goes to the host is one number for each kind of
sweep, of which all that takes time is a line. In models with several windows it is a number for
each of them, and a programme is needed.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from tandem.planner.relaxation.attention_prices import AttentionPrices
from tandem.planner.relaxation.fixed_costs import (
    LEFT_OUT,
    carried_by,
    fixed_costs,
    least_slotted,
    most_sweep_s,
    room_bytes,
    sweep_tokens,
    token_weights,
)
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.sweep_kinds import SweepKind
from tandem.planner.relaxation.way import Way

_ROUNDED_DOWN = 1 - 1e-9
"""Programmes are solved to a tolerance."""


class _Line(NamedTuple):
    """Seconds where no prompt's KV goes to the host, and how many more if all does."""

    here_s: float
    more_s: float = 0.0


def has_closed_form(prices: Prices, way: Way) -> bool:
    """Whether a way's ranges are bounded without a programme."""
    return way.has_cohort and len(way.homes) <= 2 and len(prices.attention) == 1


def least_token_s(prices: Prices, way: Way, rows: Rows) -> float:
    """Seconds per output token of a way that has a closed form, as its programme finds them but for
    rounding; infinite if nothing fits, or keeps the bound on time per token.
    """
    moved = _layers_that_come(prices, way, rows)
    if moved is None:
        return inf
    every = prices.kinds(way, rows)
    return min((_token_s(prices, way, rows, kinds, moved) for kinds in every), default=inf)


def _token_s(
    prices: Prices, way: Way, rows: Rows, kinds: Sequence[SweepKind], moved: float
) -> float:
    times_s = [_ROUNDED_DOWN * _sweep_s(prices, way, rows, kind, moved) for kind in kinds]
    pairs = list(zip(kinds, times_s, strict=True))
    most_s = most_sweep_s(prices, way)
    if most_s is not None and sum(kind.share * s for kind, s in pairs if kind.decodes) > most_s:
        return inf
    weighted = token_weights(prices, way, rows, kinds)
    return max(sum(w * s for w, s in zip(each, times_s, strict=True)) for each in weighted)


def _layers_that_come(prices: Prices, way: Way, rows: Rows) -> float | None:
    """As few as leave room, with embeddings in host memory as far as that holds them; None if there
    is none.
    """
    here, there = room_bytes(prices, way, rows)
    layers, price = prices.question.movable_layers, prices.layer
    every = layers * price.device_bytes("resident")
    slack = (1 - _ROUNDED_DOWN) * every
    spared = hosted = 0
    for home in way.homes[1:]:
        spared = price.device_bytes("resident") - price.device_bytes(home)
        hosted = price.host_bytes(home)
    least = max(0.0, least_slotted(prices, way) - LEFT_OUT)
    looked_up, count = float(prices.footprint.embedding_bytes), least
    for _ in range(2):
        over = every - looked_up - here
        if over > slack + spared * layers:
            return None
        count = max(least, over / spared) if spared else least
        beyond = count * hosted + looked_up - there
        if beyond <= slack:
            return count
        looked_up -= beyond  # which helps where more layers come than memory asks for
        if looked_up < 0:
            return None
    return None


def _sweep_s(prices: Prices, way: Way, rows: Rows, kind: SweepKind, moved: float) -> float:
    tokens, fixed = sweep_tokens(prices, rows, kind), fixed_costs(prices, way, rows, kind)
    priced = [prices.layer.of(home, max(1, tokens)) for home in way.homes]
    numbers = (prices.question.movable_layers - moved, moved)[: len(priced)]
    counted = list(zip(priced, numbers, strict=True))
    link_s = sum(count * price.link_s for price, count in counted)
    moved_bytes = fixed.dram_bytes + sum(count * price.dram_bytes for price, count in counted)
    pool = prices.question.hardware.host.pool_bytes_per_s
    if fixed.alone_s is not None:
        return max(fixed.alone_s, fixed.cpu_s, link_s, moved_bytes / pool)
    around_s = fixed.around_s + sum(count * price.chain_s for price, count in counted)
    beside_s = 0.0 if fixed.beside_s is None else fixed.beside_s
    carried, [attention] = carried_by(prices, way, rows, kind), prices.attention.values()
    layers, read = prices.question.model.num_layers, carried.prompt_tokens
    falling = [
        _Line(
            around_s + layers * line.at(carried.rows, read), -layers * read * line.per_prompt_token
        )
        for line in attention.device
    ]
    rising = [_Line(max(around_s + beside_s, link_s))]
    rising += _hosted(attention, layers, read, around_s, fixed.cpu_s)
    each = attention.host_bytes.per_prompt_token + attention.copied_bytes.per_prompt_token
    moved_bytes += layers * attention.host_bytes.fixed
    rising.append(_Line(moved_bytes / pool, layers * read * each / pool))
    if carried.all_here:
        return max(line.here_s for line in (*falling, *rising))
    most = carried.prompts_on_device
    return _least_of_longest(falling, rising, 0.0 if most is None else max(0.0, 1 - most))


def _hosted(
    attention: AttentionPrices, layers: int, read: int, around_s: float, cpu_s: float
) -> list[_Line]:
    """Prompts' attention on the host and their way there, in the chain and on the CPU."""
    copies_s = layers * read * attention.copies.per_prompt_token
    found = [_Line(around_s, copies_s), _Line(cpu_s)]
    for line in attention.host:
        fixed_s, more_s = layers * line.fixed, layers * read * line.per_prompt_token
        found.append(_Line(around_s + fixed_s, copies_s + more_s))
        found.append(_Line(cpu_s + fixed_s, more_s))
    return found


def _least_of_longest(falling: Sequence[_Line], rising: Sequence[_Line], least: float) -> float:
    """The longest of some lines at the share, from `least` to 1, at which it is shortest: where one
    that falls and one that rises meet, or at an end.
    """
    longest_s = 0.0
    for down_s, down_more_s in falling:
        for up_s, up_more_s in rising:
            closer_s = up_more_s - down_more_s
            share = (down_s - up_s) / closer_s if closer_s else least
            # tens of thousands of pairs: without a call for the larger and the smaller
            share = least if share < least else min(share, 1.0)
            falls_s, rises_s = down_s + share * down_more_s, up_s + share * up_more_s
            if falls_s > longest_s:
                longest_s = falls_s
            if rises_s > longest_s:
                longest_s = rises_s
    return longest_s
