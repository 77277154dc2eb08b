"""Passing keys and values as copies, and how far back a pass looks for those ahead of it."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandem.plan.binding import TierAppend, TierAttention
from tandem.plan.block_shape import AHEAD_COPIES, BlockShape
from tandem.plan.block_template import block_template, first_block_template
from tandem.plan.passing import PassingKV, RecomputedPrefix
from tandem.plan.program import Queue
from tandem.plan.weights import StreamedLayers

NO_TOKENS = np.zeros(0, dtype=np.int64)
NOTHING = TierAttention(
    None, np.zeros(1, np.int32), 0, np.zeros(0, np.int32), np.zeros((0, 0), np.int32), None
)
BLOCKS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20)


@given(BLOCKS)
def test_runs_are_the_fewest_copies_that_bring_every_block_once(
    pairs: list[tuple[int, int]],
) -> None:
    slot, host = (np.array([pair[i] for pair in pairs], dtype=np.int32) for i in (0, 1))
    passing = PassingKV(NOTHING, TierAppend(None, NO_TOKENS), slot, host)
    copied = [
        (run.slot_block + i, run.host_block + i) for run in passing.runs for i in range(run.count)
    ]
    assert copied == pairs
    breaks = sum((b[0] - a[0], b[1] - a[1]) != (1, 1) for a, b in itertools.pairwise(pairs))
    assert len(passing.runs) == (breaks + 1 if pairs else 0)


@given(st.lists(st.integers(0, 40), max_size=30))
def test_activations_come_in_runs_of_entries(entries: list[int]) -> None:
    of = np.array(entries, dtype=np.int64)
    prefix = RecomputedPrefix(of, NO_TOKENS, np.zeros(0, np.int32), NO_TOKENS, None)
    assert [first + i for first, count in prefix.runs for i in range(count)] == entries
    breaks = sum(b - a != 1 for a, b in itertools.pairwise(entries))
    assert len(prefix.runs) == (breaks + 1 if entries else 0)


@given(st.integers(1, 5), st.integers(1, 5), *[st.booleans()] * 5)
def test_no_pass_looks_further_back_than_the_copies_ahead(
    layers: int,
    batches: int,
    resident: bool,
    cpu: bool,
    recomputes: bool,
    layers_overlap: bool,
    mlps: bool,
) -> None:
    all_layers = tuple(range(layers)) if mlps else ()
    shape = BlockShape(
        layers,
        batches,
        StreamedLayers(all_layers, mlps=all_layers),
        resident=resident,
        streamed=True,
        cpu=cpu,
        recomputes=recomputes,
        layers_overlap=layers_overlap,
        mlps_on_cpu=all_layers,
    )
    waits = [
        wait.ordinal
        for template in (first_block_template(shape), block_template(shape))
        for op in template.ops
        for wait in op.waits
        if wait.queue is Queue.H2D
    ]
    assert min(waits) > -AHEAD_COPIES
