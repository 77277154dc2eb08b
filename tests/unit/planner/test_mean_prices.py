"""Passes of unlike numbers of sequences in the programmes of blocks."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import SMALL, ask, short

from tandem.cost.unlike_rows import UnlikeRows
from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.bound import BlockBound
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.block_programmes import (
    BlockProgrammes,
    RelaxedBlock,
    Sequences,
)
from tandem.planner.offline.relaxation.mean_prices import MeanPrices, MeanRows
from tandem.planner.offline.times import BlockTimes
from tandem.spec.units import GIB

BLOCK = BlockCandidate(4, 6, 0, 0, 20)


def mean_bound(rows: MeanRows) -> BlockBound:
    times = BlockTimes(ask(SMALL, "t4"))
    return BlockBound(times.question, MeanPrices(times.prices, rows), times.work)


def least(programmes: BlockProgrammes, rows: int) -> RelaxedBlock:
    sequences = Sequences(rows, rows, rows, 1.0, rows)
    found = (programmes.least(kind, sequences) for kind in programmes.kinds())
    return min((each for each in found if each), key=lambda each: each.shares.block_s)


def test_passes_with_one_more_and_without_ask_for_what_lies_between() -> None:
    bound = BlockTimes(ask(SMALL, "t4")).bound
    fewer, more = (bound.decode_busy(replace(BLOCK, cpu_rows=rows)) for rows in (10, 11))
    rows = MeanRows(UnlikeRows(10.5, 1, 20, 20), 1, 1.0, 10.5)
    found = mean_bound(rows).decode_busy(BLOCK)
    assert fewer.cpu_s < found.cpu_s < more.cpu_s
    assert found.cpu_s == pytest.approx((fewer.cpu_s + more.cpu_s) / 2)
    assert found.dram_bytes == pytest.approx((fewer.dram_bytes + more.dram_bytes) / 2)
    assert found.way_s == pytest.approx((fewer.way_s + more.way_s) / 2)


def test_batches_that_may_be_empty_ask_for_no_more_than_full_ones() -> None:
    """60 sequences in the mean, of four batches of 20: three of these, and a batch's way through
    all layers is that of 15 at least.
    """
    bound = BlockTimes(ask(SMALL, "t4")).bound
    full, mean = (bound.decode_busy(replace(BLOCK, cpu_rows=rows)) for rows in (20, 15))
    rows = MeanRows(UnlikeRows(60.0, 1, 80, 20), 4, 1.0, 60.0)
    found = mean_bound(rows).decode_busy(BLOCK)
    assert found.accelerator_s == pytest.approx(full.accelerator_s * 0.75)
    assert found.accelerator_s < 0.8 * mean.accelerator_s
    assert found.way_s == pytest.approx(mean.way_s)
    assert found.link_s > full.link_s * 0.75  # weights come for however many


def test_the_last_sequence_of_a_job_leaves_the_other_batches_empty() -> None:
    bound = BlockTimes(ask(SMALL, "t4")).bound
    one = bound.decode_busy(replace(BLOCK, batches=1, cpu_rows=1))
    rows = MeanRows(UnlikeRows(1.0, 1, 80, 20), 4, 1.0, 60.0)
    found = mean_bound(rows).decode_busy(BLOCK)
    assert found.cpu_s == pytest.approx(one.cpu_s)
    assert found.way_s == pytest.approx(one.way_s)


def test_a_program_for_two_blocks_brings_layers_half_as_often_for_each() -> None:
    bound, block = BlockTimes(ask(SMALL, "t4")).bound, replace(BLOCK, streamed=8, cpu_rows=10)
    one, passes = bound.prefill_busy(block), UnlikeRows(20.0, 20, 20, 20)
    same = mean_bound(MeanRows(passes, 1, 1.0, 10.0)).prefill_busy(block)
    shared = mean_bound(MeanRows(passes, 1, 0.5, 20.0)).prefill_busy(block)
    assert same.link_s == pytest.approx(one.link_s)
    assert same.accelerator_s == pytest.approx(one.accelerator_s)
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
