"""Rows of a block's programme that keep to both memories, in gigabytes."""

from dataclasses import replace

from tandem.plan.weights import stream_slots
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.kv_kinds import KvKinds
from tandem.planner.offline.relaxation.layers_away import LayersAway
from tandem.planner.offline.times import BlockTimes
from tandem.planner.relaxation.programme import Entries, Programme

_Columns = tuple[int, int, tuple[int, ...]]
"""Shares of layers that are streamed, of those that are read before, and of each kind of KV."""
_GIGA = 1e9


def limit_memory(
    programme: Programme, times: BlockTimes, away: LayersAway, held: KvKinds, columns: _Columns
) -> None:
    """Prompts wait where they take least.

    Args:
        held: kinds of KV with as many sequences as there must be room for.
    """
    question = times.question
    device, here = _on_device(times, away, held, columns)
    programme.at_most(device, (question.device_bytes - here) / _GIGA)
    host, there = _on_host(times, away, held, columns)
    programme.at_most(host, (question.host_bytes - there) / _GIGA)


def _on_device(
    times: BlockTimes, away: LayersAway, held: KvKinds, columns: _Columns
) -> tuple[Entries, float]:
    """What shares take of the accelerator's memory, and bytes that are taken anyway: slots are
    there, however few layers pass through them.
    """
    streamed, read, kinds = columns
    footprint, layers = times.footprint, times.question.model.num_layers
    every, fixed = away.all_away(held[0]), 0.0
    sums = [footprint.least_device(kind) for kind in held]
    weights: float = footprint.least_device(every).weights - sums[0].weights
    if away.way.streams:
        count = stream_slots(layers)
        fixed = -weights * count / (layers - count)
        weights -= fixed
    entries = [(streamed, weights / _GIGA)]
    if away.way.reads and every.mlps:
        # of layers that are read nothing stays, and slots are as large as they
        stays = footprint.attention_bytes(every.quantized)
        entries += [(read, -layers * stays / _GIGA)]
        fixed += stream_slots(layers) * stays
    entries += [(c, each.total / _GIGA) for c, each in zip(kinds, sums, strict=True)]
    return entries, fixed


def _on_host(
    times: BlockTimes, away: LayersAway, held: KvKinds, columns: _Columns
) -> tuple[Entries, float]:
    """Likewise, of the host's, with the slots of layers that are read."""
    streamed, read, kinds = columns
    every, fixed = away.all_away(held[0]), 0.0

    def weights_of(candidate: BlockCandidate) -> int:
        return times.footprint.host(candidate, prompts_on_host=False).weights

    sums = [times.footprint.host(kind, prompts_on_host=False) for kind in held]
    weights = weights_of(every) - sums[0].weights
    entries = [(streamed, weights / _GIGA)]
    if away.way.reads:
        entries += [(read, -weights / _GIGA)]
        fixed = weights_of(replace(every, on_disk=times.question.model.num_layers))
    entries += [(c, each.total / _GIGA) for c, each in zip(kinds, sums, strict=True)]
    return entries, fixed
