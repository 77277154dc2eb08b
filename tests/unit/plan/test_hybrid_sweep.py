"""Which tokens of a step attend and are put where, against a plain count over blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.plan.binding import LaneBinding, TierAppend, TierAttention
from tandem.plan.hybrid_sweep import hybrid_rows, hybrid_template, is_plain_sweep
from tandem.plan.program import LaneShape, LaneSlot, StepProgram
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sweep_template
from tandem.spec.tier import Tier

_SIZE = 4
_NO_BLOCK = 1 << 20
_TEMPLATE = sweep_template(2, (LaneShape(host=True),))


@st.composite
def _rows(draw: st.DrawFn) -> list[tuple[int, list[bool]]]:
    """Each row's position, and of each of its blocks whether it lies on the host."""
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        position = draw(st.integers(0, 4 * _SIZE - 1))
        count = position // _SIZE + 1
        rows.append((position, draw(st.lists(st.booleans(), min_size=count, max_size=count))))
    return rows


def _program(rows: list[tuple[int, list[bool]]], *, wanted: int | None = None) -> StepProgram:
    tokens = len(rows)
    attention: dict[Tier, TierAttention] = {}
    append: dict[Tier, TierAppend] = {}
    for tier in Tier:
        blocks = [
            [at for at, on_host in enumerate(homes) if on_host == (tier is Tier.HOST)]
            for _, homes in rows
        ]
        chosen = [row for row, own in enumerate(blocks) if own]
        put = [row for row, (_, homes) in enumerate(rows) if homes[-1] == (tier is Tier.HOST)]
        if put:
            index = None if len(put) == tokens else np.array(put)
            append[tier] = TierAppend(index, np.arange(len(put)))
        if not chosen:
            continue
        width = max(len(blocks[row]) for row in chosen) + 1
        table = np.zeros((len(chosen), width), dtype=np.int32)
        held = np.full((len(chosen), width), _NO_BLOCK, dtype=np.int32)
        for line, row in enumerate(chosen):
            held[line, : len(blocks[row])] = blocks[row]
        attention[tier] = TierAttention(
            None if len(chosen) == tokens else np.array(chosen),
            np.arange(len(chosen) + 1, dtype=np.int32),
            len(chosen),
            np.array([rows[row][0] for row in chosen], dtype=np.int32),
            table,
            held,
        )
    positions = np.array([position for position, _ in rows], dtype=np.int32)
    binding = LaneBinding(
        np.arange(tokens, dtype=np.int32), np.full(tokens, -1), np.arange(tokens), positions,
        attention, append, np.arange(tokens if wanted is None else wanted),
    )  # fmt: skip
    return StepProgram(1, _TEMPLATE, (LaneSlot(binding),))


@given(_rows())
def test_tokens_are_where_their_blocks_are(rows: list[tuple[int, list[bool]]]) -> None:
    found = hybrid_rows(_program(rows), _SIZE)
    if not any(any(homes) for _, homes in rows):
        assert found is None
        return
    assert found is not None
    keys = [
        sum(
            min(_SIZE, position + 1 - at * _SIZE) for at, on_host in enumerate(homes) if not on_host
        )
        for position, homes in rows
    ]
    assert found.keys_here.tolist() == keys
    assert found.here.tolist() == [row for row, count in enumerate(keys) if count]
    assert found.there.tolist() == [row for row, (_, homes) in enumerate(rows) if any(homes)]
    assert found.put_there.tolist() == [row for row, (_, homes) in enumerate(rows) if homes[-1]]
    assert found.put_here.tolist() == [row for row, (_, homes) in enumerate(rows) if not homes[-1]]


def test_rows_in_both_tiers_may_be_unwanted() -> None:
    apart, both = [(5, [True, True]), (3, [False])], [(5, [False, True])]
    assert hybrid_rows(_program(apart), _SIZE, splits=False) is not None
    assert hybrid_rows(_program(both), _SIZE, splits=False) is None


def test_other_steps_are_refused() -> None:
    rows = [(5, [True, True]), (3, [False])]
    program = _program(rows)
    assert hybrid_rows(_program(rows, wanted=1), _SIZE) is None
    slot = program.lanes[0]
    cohort = LaneSlot(slot.binding, cohort_id=3)
    assert hybrid_rows(StepProgram(1, _TEMPLATE, (cohort,)), _SIZE) is None
    (attention,) = [program.lanes[0].binding.attention[Tier.HOST]]
    chunk = TierAttention(
        attention.token_index, attention.query_start, 0, attention.positions,
        attention.block_table, attention.block_index,
    )  # fmt: skip
    slot.binding.attention[Tier.HOST] = chunk
    assert hybrid_rows(program, _SIZE) is None


@pytest.mark.parametrize(
    ("lanes", "layers"),
    [
        ((LaneShape(),), SweepLayers()),
        ((LaneShape(host=True), LaneShape(host=True, suspends=True)), SweepLayers()),
        ((LaneShape(host=True, suspends=True),), SweepLayers()),
        ((LaneShape(host=True),), SweepLayers(on_cpu=(1,))),
    ],
)
def test_only_whole_sweeps_on_the_accelerator_are_plain(
    lanes: tuple[LaneShape, ...], layers: SweepLayers
) -> None:
    assert is_plain_sweep(_TEMPLATE)
    assert not is_plain_sweep(sweep_template(2, lanes, layers))


def test_the_template_is_valid() -> None:
    assert [op.queue.value for op in hybrid_template().ops] == ["cpu", "accel"]
