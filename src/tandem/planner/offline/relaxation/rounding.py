"""Candidates near the shares of a block's programmes."""

import math
from collections.abc import Iterator
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import COLUMNS_AT_ONCE, BlockCandidates, whole_columns
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.relaxation.block_programmes import RelaxedBlock

_WHOLE = 1e-6  # of a layer, by which the solver may be off
_MORE = (0, 1)  # layers streamed, since sums of whole blocks take more than their shares


def rounded_shares(
    relaxed: RelaxedBlock, candidates: BlockCandidates, num_layers: int, policy: OfflinePolicy
) -> Iterator[BlockCandidate]:
    """In whole layers and sequences, as many of these on the accelerator as the programme has there
    and as memory has room for; what is not possible is left out.
    """
    shares, lends = relaxed.shares, relaxed.way.lends_layers
    size = candidates.intermediate_size
    rows = relaxed.block.rows
    least = math.ceil(shares.streamed * num_layers - _WHOLE)
    for streamed in {min(num_layers, least + more) for more in _MORE}:
        lent = min(round(shares.lent * num_layers), streamed - STREAM_SLOTS) if lends else 0
        start = replace(relaxed.block, streamed=streamed, mlps=relaxed.way.mlps, lent=max(0, lent))
        if relaxed.way.divides and streamed:
            columns = whole_columns(shares.columns * num_layers / streamed * size)
            if relaxed.way.lends == "maps":
                start = replace(start, attention_maps=True, columns=max(columns, COLUMNS_AT_ONCE))
            else:
                start = replace(start, columns=columns)
        resident = math.floor(rows * shares.resident + _WHOLE)
        cpu = min(rows - resident, round(rows * shares.cpu))
        most = min(rows - cpu, candidates.most_resident(start.shared(0, cpu), policy))
        for count in {resident, most}:
            yield from _made(start.shared(count, cpu), candidates, policy)


def _made(
    found: BlockCandidate, candidates: BlockCandidates, policy: OfflinePolicy
) -> Iterator[BlockCandidate]:
    """With and without prefixes that are made anew; beside MLPs alone elsewhere without, though
    small changes may add them there (`BlockCandidates.may_recompute`).
    """
    prefixes = [0]
    if found.streamed_rows and candidates.may_recompute(found, policy) and not found.attention_maps:
        prefixes += candidates.recomputes.of(found)
    for prefix in prefixes:
        candidate = candidates.placed(replace(found, recomputed_tokens=prefix))
        if candidates.possible(candidate, policy):
            yield candidate
