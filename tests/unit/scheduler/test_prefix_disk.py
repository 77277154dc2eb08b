"""Beginnings of prompts that memory had to make room for, and that come back from a disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.support.script import drain, run_all
from tests.support.setups import Setup
from tests.support.step_prices import round_prices
from tests.support.toy_reference import greedy

from tandem.memory.prefix_cache import DiskStats
from tandem.plan.events import StepTimes
from tandem.scheduler.fetching import FetchRule
from tandem.scheduler.reading import Found, ReadRule
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

BLOCK, PROMPT = 4, 25
LAYERS, VOCAB = 2, 50
ALONE = Setup(device_blocks=16, block_size=BLOCK, max_num_seqs=4)
BESIDE = replace(ALONE, host_blocks=16, host_prefix_share=1.0, executor="exact")
FORMS = {"alone": ALONE, "beside an accelerator": BESIDE}


def request(name: int, extra: tuple[int, ...] = (), max_tokens: int = 3) -> EngineRequest:
    """A prompt of seven blocks that begins like no other's, at least before `extra`."""
    prompt = tuple((5 * i + 7 * name) % 43 + 2 for i in range(PROMPT)) + extra
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest(f"r{name}-{len(extra)}", prompt, params)


def serve(engine: TestEngine, *requests: EngineRequest) -> dict[str, int]:
    """One after the other; tokens must be right. Returns how many each had from the cache."""
    cached: dict[str, int] = {}
    for each in requests:
        result = run_all(engine.core, [each], num_layers=LAYERS)[each.request_id]
        assert result.token_ids == greedy(each, num_layers=LAYERS, vocab_size=VOCAB)[0]
        cached[each.request_id] = result.cached_tokens
        engine.settle_disk()
    engine.check_idle()
    return cached


def told(engine: TestEngine) -> DiskStats:
    """What the engine says of its disk."""
    stats = engine.stats.disk
    assert stats is not None
    return stats


@contextmanager
def after_eviction(setup: Setup, folder: Path) -> Iterator[TestEngine]:
    """An engine that has served prompt 0 and so many others that memory has forgotten it."""
    with toy_engine(replace(setup, disk=folder / "kv"), LAYERS) as engine:
        serve(engine, *(request(name) for name in range(12)))
        digests: list[bytes] = []
        prefix = engine.scheduler.kv.prefix
        prefix.extend_digests(digests, request(0).prompt_token_ids)
        assert all(prefix.find(digest) is None for digest in digests)
        yield engine


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_what_memory_forgot_comes_back_from_the_disk(form: str, seed: int, tmp_path: Path) -> None:
    with after_eviction(replace(FORMS[form], executor_seed=seed), tmp_path) as engine:
        assert serve(engine, request(0)) == {"r0-0": 24}
        assert told(engine).read_blocks == 6
        # it is in memory again, and nothing is read twice
        assert serve(engine, request(0, (1,))) == {"r0-1": 24}
        assert (told(engine).read_blocks, told(engine).damaged_blocks) == (6, 0)


@pytest.mark.parametrize("form", FORMS)
def test_another_engine_goes_on_with_what_is_there(form: str, tmp_path: Path) -> None:
    with after_eviction(FORMS[form], tmp_path) as engine:
        stored = told(engine).stored_blocks
    with toy_engine(replace(FORMS[form], disk=tmp_path / "kv"), LAYERS) as engine:
        assert told(engine).stored_blocks == stored > 30
        assert serve(engine, request(0), request(1)) == {"r0-0": 24, "r1-0": 24}
        assert told(engine).read_blocks == 12


def test_a_closed_engine_writes_what_memory_holds(tmp_path: Path) -> None:
    """Its last prompt is computed in its last step, after which it submits nothing."""
    setup = replace(ALONE, disk=tmp_path / "kv")
    with toy_engine(setup, LAYERS) as engine:
        run_all(engine.core, [request(0, max_tokens=1)], num_layers=LAYERS)
        assert told(engine).stored_blocks == 0
    with toy_engine(setup, LAYERS) as engine:
        assert told(engine).stored_blocks == 6
        assert serve(engine, request(0)) == {"r0-0": 24}


def test_a_request_waits_for_what_another_has_read(tmp_path: Path) -> None:
    with after_eviction(ALONE, tmp_path) as engine:
        both = [request(0, max_tokens=2), request(0, (1, 2), max_tokens=2)]
        results = run_all(engine.core, both, num_layers=LAYERS)
        assert [results[each.request_id].cached_tokens for each in both] == [24, 24]
        assert told(engine).read_blocks == 6


def test_others_go_on_while_a_prefix_is_read(tmp_path: Path) -> None:
    with after_eviction(replace(ALONE, device_blocks=24), tmp_path) as engine:
        disk, scheduler = engine.disk, engine.scheduler
        assert disk is not None
        engine.core.add_request(request(0))
        jobs = scheduler.disk_jobs()  # the disk takes its time: nobody does them yet
        assert scheduler.is_reading
        other = request(20)
        engine.core.add_request(other)
        tokens: list[int] = []
        while len(tokens) < 3:
            outputs = engine.core.step()
            assert all(output.request_id == other.request_id for output in outputs)
            tokens += [token for output in outputs for token in output.token_ids]
        assert tokens == greedy(other, num_layers=LAYERS, vocab_size=VOCAB)[0]
        disk.submit(jobs)
        drain(engine.core)
        assert told(engine).read_blocks == 6


def test_an_aborted_request_leaves_nothing(tmp_path: Path) -> None:
    with after_eviction(BESIDE, tmp_path) as engine:
        for number in range(8):
            each = request(0, tuple(range(1, 2 + number)))
            engine.core.add_request(each)
            for _ in range(number):
                engine.core.step()
            engine.core.abort(each.request_id)
            drain(engine.core)
            engine.check_idle()


def test_a_driver_is_woken_and_never_waits(tmp_path: Path) -> None:
    with after_eviction(ALONE, tmp_path) as engine:
        woken: list[bool] = []
        disk = engine.disk
        assert disk is not None
        engine.core.wake_by(lambda: woken.append(True))
        engine.core.add_request(request(0))
        engine.core.tend()
        while not engine.core.is_parked():
            assert not woken, "the disk was faster than this test: nothing was seen"
            engine.core.step()
        disk.wait()
        assert woken
        assert engine.core.has_work()
        engine.core.tend()
        assert not engine.core.is_parked()
        drain(engine.core)


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_block_is_computed_again(form: str, tmp_path: Path) -> None:
    with after_eviction(FORMS[form], tmp_path) as engine:
        pages = tmp_path / "kv" / "tandem-kv.pages"
        pages.write_bytes(bytes(byte ^ 1 for byte in pages.read_bytes()))
        assert serve(engine, request(0)) == {"r0-0": 0}
        assert (told(engine).read_blocks, told(engine).damaged_blocks) == (0, 6)
        stored = told(engine).stored_blocks
        # what was computed again is kept again
        assert serve(engine, *(request(name) for name in range(20, 30)), request(0))["r0-0"] == 24
        assert told(engine).stored_blocks > stored


def test_a_full_disk_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with after_eviction(ALONE, tmp_path) as engine:
        assert engine.disk is not None

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(engine.disk._file, "write", full)
        assert serve(engine, request(20), request(0)) == {"r20-0": 0, "r0-0": 24}
        stats = told(engine)
        assert (stats.writing, stats.read_blocks) == (False, 6)
        assert serve(engine, request(21)) == {"r21-0": 0}
        assert told(engine).written_blocks == stats.written_blocks


def test_the_least_recently_used_gives_way(tmp_path: Path) -> None:
    slots = 20
    setup = replace(ALONE, disk=tmp_path, disk_bytes=16384 + slots * (4096 + 32))
    with toy_engine(setup, LAYERS) as engine:
        serve(engine, *(request(name) for name in range(6)))
        stats = told(engine)
        assert (stats.stored_blocks, stats.room_blocks) == (slots, slots)
        assert stats.evicted_blocks == stats.written_blocks - slots > 0
        assert serve(engine, request(0)) == {"r0-0": 0}
    size = sum(each.stat().st_size for each in tmp_path.iterdir())
    assert size <= setup.disk_bytes


def test_nothing_is_read_that_is_computed_sooner(tmp_path: Path) -> None:
    prices = round_prices(LAYERS, layer_s=1e-12, token_s=1e-12, block_s=1e-13)
    with after_eviction(replace(ALONE, prices=prices), tmp_path) as engine:
        # the disk's time is not known before the first block has been read
        assert serve(engine, request(0)) == {"r0-0": 24}
        assert serve(engine, request(1)) == {"r1-0": 0}
        assert told(engine).read_blocks == 6


# --- the rule ---------------------------------------------------------------------------------


FOUND = Found(blocks=4, queued=0, fetched=0, ready=0, after=16, total=20, decodes=0)


def test_reading_is_compared_with_what_it_spares() -> None:
    # sixteen tokens are spared, a second each
    rule = ReadRule(FetchRule(round_prices(1, token_s=1.0, layer_s=0.0), BLOCK, 100))
    assert rule.pays(FOUND)
    spared_s = FetchRule(round_prices(1, token_s=1.0, layer_s=0.0), BLOCK, 100).spared_s(
        0, 16, 20, 0
    )
    rule.was_read(spared_s / 4 * 0.9)
    assert rule.pays(FOUND)
    assert not rule.pays(replace(FOUND, queued=1))


def test_a_disk_that_was_slow_once_is_tried_again() -> None:
    rule = ReadRule(FetchRule(round_prices(1, token_s=1.0, layer_s=0.0), BLOCK, 100))
    rule.was_read(1e3)
    assert not rule.pays(FOUND)
    assert any(rule.pays(FOUND) for _ in range(200))


def test_without_prices_prompts_take_what_they_took() -> None:
    rule = ReadRule(FetchRule(None, BLOCK, 100))
    rule.was_read(1.0)
    assert rule.pays(FOUND)
    rule.submitted(7, 50, 1)
    rule.submitted(8, 50, 20)  # too many decodes beside it
    rule.retired(7, StepTimes(0.0, 1.0, 6.0, {}))
    rule.retired(8, StepTimes(0.0, 1.0, 1000.0, {}))
    assert not rule.pays(FOUND)  # four seconds for what takes 1.6
    assert rule.pays(replace(FOUND, after=80, total=100))
