"""Rows of a comparison, with engines whose times are given."""

from pathlib import Path
from typing import Any, cast

import pytest
from benchmarks.peers.case_run import CaseRun, IdleTime
from benchmarks.peers.engines import LLAMA_CPP, OURS, Engine
from benchmarks.peers.line_protocol import Worker

from tandem.bench.generation import Generated, Prompts
from tandem.bench.host_case import HostCase
from tandem.bench.host_model import LlamaShape
from tandem.bench.records import BenchRow
from tandem.models.config import read_model_spec
from tandem.spec.dtype import DType

TINY = LlamaShape("tiny", 32, 2, 4, 2, 48, 97)


class TimedWorker:
    """Answers in `decode_s`; takes a second of processor time whenever it is looked at."""

    def __init__(self, decode_s: float, spins: bool = False) -> None:
        self._decode_s, self._spins, self._looks = decode_s, spins, 0
        self.asked: list[Prompts] = []

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        self.asked.append(prompts)
        return Generated(tuple((0,) * new_tokens for _ in prompts), 1.0, self._decode_s)

    def processor_s(self) -> float:
        self._looks += self._spins
        return float(self._looks)


def engine(name: str, dtype: DType | None) -> Engine:
    return Engine(name, "none", dtype, False, lambda models: models.directory)


@pytest.fixture
def workers() -> dict[str, Any]:
    return {
        OURS[0]: TimedWorker(1.0),
        LLAMA_CPP: TimedWorker(2.0, spins=True),
        "int8": TimedWorker(0.5),
    }


def rows_of(case: HostCase, workers: dict[str, Any], idle: IdleTime, place: Path) -> list[BenchRow]:
    TINY.write(place, DType.FLOAT16)
    engines = [
        engine(OURS[0], DType.FLOAT16),
        engine(LLAMA_CPP, DType.FLOAT16),
        engine("int8", None),
    ]
    run = CaseRun(case, "tiny", read_model_spec(place), engines, workers, idle)
    return run.rows(rounds=2)


def test_ours_is_held_against_llama_cpp(workers: dict[str, Any], tmp_path: Path) -> None:
    idle = IdleTime(cast(dict[str, Worker], workers))
    for batch, target in ((1, 0.9), (8, 1.0)):
        rows = rows_of(HostCase(batch, 4, 3), workers, idle, tmp_path)
        by_name = {(row.variant, row.metric): row for row in rows}
        rate = by_name[OURS[0], "decode throughput"]
        assert rate.value == batch * 2
        assert rate.bound == by_name[LLAMA_CPP, "decode throughput"].bound
        assert by_name["int8", "decode throughput"].bound is None
        over = by_name[OURS[0], f"decode throughput over {LLAMA_CPP}"]
        assert (over.value, over.bound) == (2.0, target)
        assert by_name[OURS[0], "decode throughput over int8"].bound is None
        assert by_name[LLAMA_CPP, f"tokens equal to {OURS[0]}"].value == 1.0


def test_all_engines_meet_equal_prompts_that_differ_by_round(
    workers: dict[str, Any], tmp_path: Path
) -> None:
    rows_of(HostCase(2, 4, 3), workers, IdleTime(cast(dict[str, Worker], workers)), tmp_path)
    first, *others = (worker.asked for worker in workers.values())
    assert len(first) == 3
    assert first[0] != first[1] != first[2]
    assert all(asked == first for asked in others)


def test_an_engine_that_spins_while_others_run_is_seen(
    workers: dict[str, Any], tmp_path: Path
) -> None:
    idle = IdleTime(cast(dict[str, Worker], workers))
    rows_of(HostCase(1, 4, 3), workers, idle, tmp_path)
    cores = idle.cores()
    assert cores[LLAMA_CPP] > 0
    assert cores[OURS[0]] == cores["int8"] == 0
