"""Engine suite: what a scheduler keeps of memory while requests come and go, step after step.

By Python's count of allocated blocks: every object that is kept is at least one, an array is, too.
"""

import gc
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tandem.bench.instant_executor import InstantExecutor
from tandem.bench.records import BenchRow
from tandem.bench.scheduler_load import some_prices
from tandem.memory.pool import BlockPool
from tandem.plan.program import StepProgram
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

BOUND_SHARE = 0.01
"""Blocks per step."""
_WINDOW = 300
_ROWS, _QUEUED = 8, 4
_BLOCK_SIZE, _BLOCKS = 16, 24
_VOCAB_SIZE, _EOS_ID = 250, 2
_LENGTHS = ((30, 9), (7, 40), (61, 3), (20, 25), (90, 17))
"""Tokens of prompts and outputs, in turn: rows enter, grow and leave in different steps, and the
pools are too small for all."""


@dataclass(frozen=True, slots=True)
class GrowthBench:
    """How long.

    Attributes:
        warm_up: steps before the count begins: caches of programs' shapes fill.
    """

    strategies: tuple[str, ...] = ("ride-along", "rendezvous", "auto", "neo", "apex")
    steps: int = 100_000
    warm_up: int = 2_000


class Turnover:
    """A scheduler that always has requests waiting, over an executor that answers at once."""

    def __init__(self, strategy: str) -> None:
        self._scheduler = Scheduler(
            SchedulerConfig(
                num_layers=2,
                max_model_len=128,
                block_size=_BLOCK_SIZE,
                max_num_seqs=_ROWS,
                max_num_batched_tokens=64,
                max_host_seqs=_ROWS,
                max_cohorts=2,
            ),
            make_strategy(strategy),
            {tier: BlockPool(tier, _BLOCKS) for tier in Tier},
            vocab_size=_VOCAB_SIZE,
            eos_ids=(_EOS_ID,),
            prices=some_prices(_ROWS),
        )
        self._executor = InstantExecutor(_VOCAB_SIZE, _EOS_ID)
        self._numbers = itertools.count()
        self.finished = 0

    def step(self) -> None:
        """Submit what can be, and take in what came of it."""
        scheduler, executor = self._scheduler, self._executor
        while len(scheduler.waiting) < _QUEUED:
            scheduler.add(self._request(next(self._numbers)))
        self._submit(scheduler.schedule())
        outputs = scheduler.observe(executor.poll(wait=False))
        self.finished += sum(output.finish_reason is not None for output in outputs)
        for cohort_id in scheduler.finished_cohorts():
            executor.release_cohort(cohort_id)
        self._submit(scheduler.late_sampling())

    def _submit(self, programs: list[StepProgram]) -> None:
        for program in programs:
            self._executor.submit(program)

    @staticmethod
    def _request(number: int) -> EngineRequest:
        prompt, generate = _LENGTHS[number % len(_LENGTHS)]
        tokens = tuple((number * 31 + i * 7) % (_VOCAB_SIZE - 3) + 3 for i in range(prompt))
        temperature = float(number % 2)
        return EngineRequest(str(number), tokens, SamplingParams(generate, temperature=temperature))


def kept_blocks(turnover: Turnover, steps: int) -> int:
    """Allocations (Python's small blocks) that so many steps left behind."""
    before = _least_blocks(turnover)
    for _ in range(steps):
        turnover.step()
    return _least_blocks(turnover) - before


def _least_blocks(turnover: Turnover) -> int:
    """Of some steps: what lives depends on who runs."""
    gc.collect()
    least = sys.getallocatedblocks()
    for _ in range(_WINDOW):
        turnover.step()
        least = min(least, sys.getallocatedblocks())
    return least


def measure_growth(bench: GrowthBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """A row per strategy."""
    rows: list[BenchRow] = []
    case = f"scheduler, requests that come and go, {bench.steps:,} steps"
    for strategy in bench.strategies:
        report(f"scheduler: {strategy} over {bench.steps:,} steps of requests that come and go")
        turnover = Turnover(strategy)
        for _ in range(bench.warm_up):
            turnover.step()
        kept, bound = kept_blocks(turnover, bench.steps), BOUND_SHARE * bench.steps
        rows.append(BenchRow(case, strategy, "allocations kept", kept, "blocks", bound))
    return tuple(rows)
