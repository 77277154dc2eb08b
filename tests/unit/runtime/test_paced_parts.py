"""Pages, work, tokens, verdicts and clocks of the paced emulator."""

import statistics
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.fakes.paced import TINY
from tests.fakes.paced_program import op, program

from tandem.cost.lane_work import count_work
from tandem.cost.stage import AttentionWork
from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.devices.native_wait import NativeAlarm
from tandem.memory.page import KVPageSpec
from tandem.plan.binding import LaneBinding, TierAppend, TierAttention
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.profiling.measurements import Contention, ThreadPoint, ThreadRates
from tandem.runtime.paced.fluid_memory import FluidMemory
from tandem.runtime.paced.host import Aliasing, PacedHost, plan_aliasing
from tandem.runtime.paced.ledger import PacedLedger
from tandem.runtime.paced.report import Lateness, judge
from tandem.runtime.paced.shared_memory import emulated_contention, emulated_sweep
from tandem.runtime.paced.tokens import SyntheticTokens
from tandem.runtime.paced.truth import PacedTruth
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier

STAGE_S = 1e-3


def page(dtype: DType) -> KVPageSpec:
    return KVPageSpec.of_model(TINY, dtype=dtype, block_size=16)


@pytest.mark.parametrize("dtype", list(DType))
def test_host_pages_are_random_distinct_finite_and_not_zero(dtype: DType) -> None:
    host = PacedHost(TINY, page(dtype), 8, Aliasing(3, 1, 1, 1), seed=0)
    pages = host._pages
    assert pages.shape == (3, 8, *page(dtype).page_shape)
    assert bool(torch.isfinite(pages).all())
    assert bool((pages != 0).all())
    flat = pages.flatten(0, 1).flatten(1).view(torch.uint8).numpy()
    assert len({row.tobytes() for row in flat}) == 24


def test_sets_of_pages_exceed_the_cache_eightfold_unless_memory_caps_them() -> None:
    spec = page(DType.FLOAT32)
    blocks = 100
    plenty = plan_aliasing(spec, blocks, cache_bytes=1 << 22, limit_bytes=1 << 40)
    assert 0.75 * plenty.distinct_bytes >= 8 << 22
    assert plenty.set_bytes == blocks * spec.bytes_per_block_layer
    capped = plan_aliasing(spec, blocks, cache_bytes=1 << 22, limit_bytes=2 * plenty.set_bytes)
    assert capped.sets == 2
    assert plan_aliasing(spec, 0, cache_bytes=1 << 22, limit_bytes=1 << 40).sets == 0


def test_work_counts_keys_per_tier() -> None:
    table = np.array([[0, 1, 0], [2, 3, 4]], dtype=np.int32)
    # row 0: one token at position 20; row 1: two tokens at 39 and 40
    attention = TierAttention(
        None,
        np.array([0, 1, 3], dtype=np.int32),
        1,
        np.array([20, 39, 40], dtype=np.int32),
        table,
        None,
    )
    ids = np.zeros(3, dtype=np.int64)
    append = TierAppend(None, np.array([20, 39, 40], dtype=np.int64))
    binding = LaneBinding(
        np.array([0, 1], dtype=np.int32),
        ids,
        ids,
        attention.positions,
        {Tier.HOST: attention},
        {Tier.HOST: append},
        np.array([0, 2], dtype=np.int64),
    )
    work = count_work(binding, 16, (0, 8))
    everything = AttentionWork(tokens=3, pairs=21 + 40 + 41, keys=21 + 41)
    assert work.attention(Tier.HOST, 0) == everything
    assert work.attention(Tier.HOST, 1) == AttentionWork(tokens=3, pairs=3 * 8, keys=8 + 9)
    assert work.attention(Tier.DEVICE, 0) == AttentionWork(0, 0, 0)
    assert (work.tokens, work.logits, work.appended[Tier.HOST]) == (3, 2, 3)


def test_synthetic_tokens_depend_on_row_and_position_and_are_no_end() -> None:
    tokens = SyntheticTokens(TINY)
    rows = np.repeat(np.arange(50), 50)
    positions = np.tile(np.arange(50), 50)
    first, again = tokens.choose(rows, positions), tokens.choose(rows, positions)
    assert (first == again).all()
    assert not set(TINY.eos_token_ids) & set(first.tolist())
    assert first.min() >= 0
    assert first.max() < TINY.vocab_size
    assert len(set(first.tolist())) > 50


def test_copies_and_host_work_slow_each_other_down_as_far_as_they_ask_for_more_than_there_is():
    """800 of 1000 bytes per second are asked for by a copy of two seconds, from 1 on."""

    def ends(pool: float | None, asked: float | None) -> tuple[float, float]:
        ledger = PacedLedger(pool, lambda _: 1600.0)
        ops = [op(Queue.H2D, 1), op(Queue.CPU, 1)]
        ledger.submit(program(ops, ledger.base, lambda _: 2.0, submitted_s=1.0))
        assert ledger.advance(1.0), "the host's part can begin"
        task = ledger.take_task()
        assert task is not None
        ledger.begin(task, 2.0, asked, alone_s=2.0)
        ledger.advance(99.0)
        spans = {span.entry.op.queue: span for span in ledger.take_spans()}
        assert spans[Queue.H2D].moved_bytes == 1600.0
        return spans[Queue.H2D].end_s, spans[Queue.CPU].end_s

    assert ends(1000.0, 200.0) == (3.0, 4.0), "there is enough for both"
    # of 1400 asked for, 1000 are there: what the copy has left takes 1.4 s for 1, the host's is as
    # far then, and goes on alone
    assert ends(1000.0, 600.0) == pytest.approx((3.4, 4.4))
    # of 1800, of which no work asks for more than there is
    assert ends(1000.0, 1000.0) == pytest.approx((3.8, 4.8))
    assert ends(1000.0, 9000.0) == ends(1000.0, None) == ends(1000.0, 1000.0)
    assert ends(None, 9000.0) == (3.0, 4.0)


def test_products_on_the_cpu_ask_for_the_weights_and_activations_that_they_read() -> None:
    hardware = pair_hardware("t4", "server-genoa")
    truth = PacedTruth(TINY, page(DType.FLOAT16), hardware, cpu_columns=TINY.intermediate_size // 4)

    def size(part: Part, tokens: int) -> float:
        stage = ProgramOp(OpKind.STAGE, Queue.CPU, part, (0,), 0, 1, (), (), (), Tier.HOST)
        return truth.host_stage_bytes(stage, tokens)

    layer = layer_matrix_bytes(TINY, Precision.uniform(DType.FLOAT16))
    assert size(Part.PRE, 1) + size(Part.POST, 1) == pytest.approx(layer, rel=0.1)
    assert 2 * size(Part.MLP, 8) > size(Part.MLP, 16) > size(Part.MLP, 8), "weights are read once"
    assert size(Part.COLUMNS, 8) == pytest.approx(size(Part.MLP, 8) / 4)
    both = size(Part.OUTPUT, 8) + size(Part.MLP, 8)
    assert both == pytest.approx(size(Part.POST, 8))
    assert size(Part.RESIDUAL, 8) == 8 * 3 * TINY.hidden_size * 4


def test_probes_find_what_emulated_copies_take() -> None:
    """A run of attention beside a copy throughout is as slow as a probe is said to have found, and
    so is the copy.
    """
    found = Contention("a", "b", "memory", "link", 600.0, 600.0, 300.0, 300.0)
    for asked in (900.0, 600.0):
        alone = replace(found, work_alone_per_s=asked, work_beside_per_s=asked)
        beside = emulated_contention(alone, 1000.0)
        memory = FluidMemory(1000.0)
        memory.begin(Queue.CPU, 0.0, 1.0, asked)
        memory.begin(Queue.H2D, 0.0, 1.0, 300.0)
        memory.advance()
        ends = {over.end_s for over in memory.advance()}
        assert beside.work_beside_per_s == pytest.approx(asked / max(ends))
        assert beside.load_beside_bytes_per_s == pytest.approx(300 / max(ends))
        assert max(ends) == pytest.approx(max(1.0, (asked + 300) / 1000))
    products = emulated_contention(replace(found, bound_by="cores"), 1000.0)
    assert products.work_beside_per_s == 600.0, "their bytes beside the link's are few"
    disks = replace(found, busy="disks", work_beside_per_s=5.0)
    assert emulated_contention(disks, 1.0) == disks


def test_threads_beside_an_emulated_link_are_slowed_down_by_the_rule_of_all() -> None:
    """Whatever a probe found beside a link that moves nothing."""
    link = Contention("a", "b", "memory", "link", 600.0, 600.0, 300.0, 300.0)
    alone = ThreadRates(600.0, 800.0, 900.0)
    (found,) = emulated_sweep([ThreadPoint(4, alone, alone)], [link], 1000.0)
    assert (found.threads, found.alone) == (4, alone)
    assert found.beside_link is not None
    assert found.beside_link.read_bytes_per_s == 600.0, "there is room for both"
    for mine, before in (
        (found.beside_link.attention_bytes_per_s, 800.0),
        (found.beside_link.linear_bytes_per_s, 900.0),
    ):
        as_contention = emulated_contention(replace(link, work_alone_per_s=before), 1000.0)
        assert mine == pytest.approx(as_contention.work_beside_per_s)
        assert mine == pytest.approx(before * 1000 / (before + 300))


@pytest.mark.parametrize(
    ("lateness", "busy", "read", "reason"),
    [
        (Lateness(poll=[STAGE_S * 0.04] * 20), 0.79, 0, None),
        (Lateness(poll=[STAGE_S * 0.06] * 20), 0.5, 0, "polls were 60 us late"),
        (Lateness(submit=[STAGE_S] * 20), 0.5, 0, "submissions were"),
        (Lateness(start=[STAGE_S] * 20), 0.5, 0, "host operations were"),
        (Lateness(poll=[0.0] * 99 + [1.0]), 0.5, 0, None),
        (Lateness(), 0.81, 0, "scheduler's core was 81% busy"),
        (Lateness(), 0.5, 799, "host attention read 799 B"),
        (Lateness(), 0.5, 800, None),
    ],
)
def test_a_run_is_invalid_when_the_host_was_too_slow(
    lateness: Lateness, busy: float, read: int, reason: str | None
) -> None:
    reasons = judge(lateness, STAGE_S, busy, read, cache_bytes=100, wanted_bytes=800)
    assert (len(reasons) == 1 and reason in reasons[0]) if reason else reasons == ()


def test_the_last_level_cache_is_the_largest(tmp_path: Path) -> None:
    for index, size in enumerate(("48K", "2048K", "30M")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(size + "\n")
    assert last_level_cache_bytes(tmp_path) == 30 << 20
    assert last_level_cache_bytes(tmp_path / "none") == 32 << 20


def test_an_alarm_ends_a_wait_from_another_thread() -> None:
    alarm = NativeAlarm()
    thread = threading.Thread(target=alarm.ring)
    begin = time.perf_counter()
    thread.start()
    alarm.wait(begin + 30)
    assert time.perf_counter() - begin < 15
    thread.join()
    alarm.close()


def test_deadlines_of_a_real_clock_do_not_drift() -> None:
    """50 operations of 1 ms end after 50 ms: waits overshoot one by one, deadlines do not."""
    walls: list[float] = []
    alarm = NativeAlarm()
    for _ in range(3):
        ledger = PacedLedger()
        begin = time.perf_counter()
        ops = [op(Queue.ACCEL, n) for n in range(1, 51)]
        ledger.submit(program(ops, ledger.base, lambda _: 1e-3, submitted_s=begin))
        ledger.advance(begin)
        spans = ledger.take_spans()
        for span in spans:
            alarm.wait(span.end_s)
            assert time.perf_counter() >= span.end_s
        assert spans[-1].end_s - begin == pytest.approx(0.05)
        walls.append(time.perf_counter() - begin)
    alarm.close()
    assert statistics.median(walls) < 0.1
