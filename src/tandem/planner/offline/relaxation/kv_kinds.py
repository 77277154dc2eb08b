"""The kinds of KV between which a block's sequences are shared out."""

from dataclasses import replace

from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.times import BlockTimes

KvKinds = tuple[BlockCandidate, ...]
"""A block with all of its KV in one way each: on the accelerator, streamed, attended on the CPU,
and streamed with all of the prompt recomputed, where that may be.
"""


def kv_kinds(times: BlockTimes, block: BlockCandidate) -> KvKinds:
    """Of a block whose KV is all on the accelerator."""
    question, streamed = times.question, block.shared(0, 0)
    kinds = (block, streamed, block.shared(0, block.rows))
    prefix = times.footprint.prompt // question.block_size * question.block_size
    whole = not any(question.model.layer_windows)
    if not (prefix and whole and block.device_kv is None):
        return kinds
    return *kinds, replace(streamed, recomputed_tokens=prefix)


def none_recomputed(kinds: KvKinds) -> KvKinds:
    """Without the kind that is."""
    return tuple(kind for kind in kinds if not kind.recomputed_tokens)
