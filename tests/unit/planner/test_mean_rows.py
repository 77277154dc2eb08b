"""Batches of unlike numbers of sequences in the programmes of blocks."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import SMALL, ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.block_programmes import (
    BlockProgrammes,
    RelaxedBlock,
    Sequences,
)
from tandem.planner.offline.relaxation.mean_rows import MeanRows, PromptPrograms
from tandem.planner.offline.times import BlockTimes
from tandem.spec.units import GIB

BLOCK = BlockCandidate(4, 6, 0, 0, 10)


def least(programmes: BlockProgrammes, rows: int) -> RelaxedBlock:
    sequences = Sequences(rows, rows, 1.0, rows)
    found = (programmes.least(kind, sequences) for kind in programmes.kinds())
    return min((each for each in found if each), key=lambda each: each.shares.block_s)


def test_half_of_the_batches_with_one_more_ask_for_what_lies_between() -> None:
    bound = BlockTimes(ask(SMALL, "t4")).bound
    fewer, more = (bound.decode_busy(replace(BLOCK, cpu_rows=rows)) for rows in (10, 11))
    found = MeanRows(bound, 0.5).decode_busy(BLOCK)
    assert fewer.cpu_s < found.cpu_s < more.cpu_s
    assert found.cpu_s == pytest.approx((fewer.cpu_s + more.cpu_s) / 2)
    assert found.chain_s == pytest.approx((fewer.chain_s + more.chain_s) / 2)
    assert MeanRows(bound).decode_busy(BLOCK) == fewer


def test_a_program_for_two_blocks_brings_layers_half_as_often_for_each() -> None:
    bound, block = BlockTimes(ask(SMALL, "t4")).bound, replace(BLOCK, streamed=8)
    one = MeanRows(bound).prefill_busy(block)
    same = MeanRows(bound, programs=PromptPrograms(1.0, block.rows)).prefill_busy(block)
    shared = MeanRows(bound, programs=PromptPrograms(0.5, 2 * block.rows)).prefill_busy(block)
    assert same == one
    assert shared.link_s == pytest.approx(one.link_s / 2)
    assert one.accelerator_s / 2 < shared.accelerator_s < one.accelerator_s


@pytest.mark.parametrize("rows", [21, 22, 23])
def test_one_sequence_more_takes_longer(rows: int) -> None:
    """Though two batches then have unlike numbers: they took as long as those without it, so that
    23 sequences were to make 4% more tokens per second than 22 and than 24.
    """
    model = short(plannable_spec("llama-3.1-70b"), 8)
    question = ask(model, "a100-80", "server-genoa", generate="64", requests=24)
    question = replace(question, device_bytes=8 * GIB, host_bytes=40 * GIB)
    programmes = BlockProgrammes(BlockTimes(question))
    one, more = (least(programmes, count) for count in (rows, rows + 1))
    assert one.block.batches == more.block.batches == 2
    assert one.shares.block_s < more.shares.block_s * (1 - 1e-6)
