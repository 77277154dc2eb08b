"""Which blocks of a row that moved the prefix cache offers to others."""

from array import array

import numpy as np
import pytest

from tandem.memory.pool import BlockPool
from tandem.memory.prefix_cache import PrefixCache
from tandem.scheduler.kv_manager import KVManager
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sequence import Sequence
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import TIERS, Tier

BLOCK = 16
TOKENS = tuple(range(4 * BLOCK))


@pytest.mark.parametrize("publish_moved", [True, False])
def test_converted_blocks_are_offered_to_nobody(publish_moved: bool) -> None:
    pools = {tier: BlockPool(tier, 8) for tier in TIERS}
    rows, prefix = RowTable(1, 8), PrefixCache(pools, BLOCK)
    kv = KVManager(rows, pools, prefix, BLOCK, publish_moved=publish_moved)
    sequence = Sequence(
        EngineRequest("r", TOKENS, SamplingParams()), 0, 0, 128, frozenset(), array("i", TOKENS)
    )
    row = rows.take()
    rows.device_limit[row] = 3
    kv.grow(row, 3 * BLOCK)
    kv.publish(np.array([row]), [sequence], np.array([1]))
    source, target = kv.begin_move(row, Tier.HOST)
    kv.complete_move(row, Tier.HOST, source, target)
    rows.submitted[row] = 3 * BLOCK
    kv.grow(row, BLOCK)
    if int(rows.published[row]) < 4:
        kv.publish(np.array([row]), [sequence], np.array([4]))
    found = [[prefix.find_in(tier, digest) is not None for tier in TIERS]
             for digest in sequence.digests]  # fmt: skip
    # the first was offered where it lay before, too; the last was written on the host
    assert found == [
        [True, publish_moved],
        [False, publish_moved],
        [False, publish_moved],
        [False, True],
    ]
    prefix.check()
    for pool in pools.values():
        pool.check()
    assert np.array_equal(rows.blocks(row, Tier.DEVICE), np.array([], np.int32))
