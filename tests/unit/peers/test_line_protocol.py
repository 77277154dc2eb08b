"""Engines behind the line protocol, with an engine that counts instead of a model."""

import sys
from collections.abc import Iterator

import pytest
from benchmarks.peers.line_protocol import Worker, WorkerError

COUNTER = """
from benchmarks.peers.line_protocol import serve
from tandem.bench.generation import Generated

class Counter:
    def __init__(self):
        print("a library's greeting")
        self.block = bytearray(BLOCK)
    def generate(self, prompts, new_tokens):
        for index in range(0, BUSY): pass
        tokens = tuple(tuple(range(p[-1] + 1, p[-1] + 1 + new_tokens)) for p in prompts)
        return Generated(tokens, 0.5, 2.0)

serve(Counter)
"""


def start(block: int = 0, busy: int = 0) -> Worker:
    program = COUNTER.replace("BLOCK", str(block)).replace("BUSY", str(busy))
    return Worker("counter", [sys.executable, "-c", program], {"PYTHONPATH": "src:."})


@pytest.fixture
def counter() -> Iterator[Worker]:
    worker = start(block=50_000_000, busy=10_000_000)
    yield worker
    worker.close()


def test_what_libraries_print_is_no_answer(counter: Worker) -> None:
    counter.wait_until_loaded()
    run = counter.generate([[1, 5], [2, 7]], 3)
    assert run.token_ids == ((6, 7, 8), (8, 9, 10))
    assert (run.first_s, run.decode_tokens_per_s) == (0.5, 2.0)
    assert counter.generate([[0]], 1).token_ids == ((1,),)


def test_memory_and_time_are_the_workers_own(counter: Worker) -> None:
    counter.wait_until_loaded()
    before = counter.processor_s()
    counter.generate([[0]], 1)
    assert counter.processor_s() > before
    assert counter.peak_rss_bytes() > 50_000_000


def test_a_worker_that_dies_is_reported() -> None:
    worker = Worker("dead", [sys.executable, "-c", "raise SystemExit(3)"], {})
    with pytest.raises(WorkerError, match="dead ended with status 3"):
        worker.wait_until_loaded()
    worker.close()
