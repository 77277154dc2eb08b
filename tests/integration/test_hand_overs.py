"""Slow hand-overs to the host, on the paced emulator in virtual time: `auto` finds them out."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.fakes.paced import TINY

from tandem.cost.hand_overs import NO_HAND_OVERS
from tandem.cost.step_prices import TierWork
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.plan.program import OpKind
from tandem.runtime.paced.costs import PacedLane
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.pool import TaskSource
from tandem.runtime.paced.virtual import VirtualClock
from tandem.scheduler.hand_over_timer import HandOverTimer
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.auto import AWAY
from tandem.spec.config import EngineConfig
from tandem.spec.hardware_file import load_hardware
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

MODEL = replace(
    TINY, hidden_size=1024, num_heads=8, num_kv_heads=8, head_dim=128, intermediate_size=16384,
    max_positions=2048,
)  # fmt: skip
PROMPT, DEVICE_ROWS, HOST_ROWS, APPEND_S = 40, 4, 4, 1e-6
LATE_S = 0.003


class LatePool:
    """A host that begins an attention `late_s()` after it could; it is idle until then."""

    def __init__(
        self, late_s: Callable[[], float], duration_s: Callable[[HostTask], float]
    ) -> None:
        self._late_s, self._duration_s = late_s, duration_s
        self._source: TaskSource | None = None

    def start(self, source: TaskSource) -> None:
        self._source = source

    def wake(self) -> None:
        assert self._source is not None
        while (task := self._source.take_task()) is not None:
            start_s = task.not_before_s
            start_s += self._late_s() if task.entry.op.kind is OpKind.ATTEND else 0.0
            self._source.completed(task, start_s, start_s + self._duration_s(task))

    def close(self) -> None:
        pass


class Job:
    """Requests of which half may lie on the host, as many as are asked for, one after the other."""

    def __init__(
        self, strategy: str, requests: int, tokens: int = 400, late_s: float = LATE_S
    ) -> None:
        self.late_s = late_s
        self.clock = VirtualClock()
        config = EngineConfig(
            "m", dtype="float16", strategy=strategy, gpu_memory="1GiB", cpu_memory="400MiB",
            block_size=16, max_num_seqs=DEVICE_ROWS + HOST_ROWS, max_num_batched_tokens=2048,
            max_model_len=2048, max_host_seqs=HOST_ROWS if strategy == "auto" else 0,
            enable_prefix_caching=False,
        )  # fmt: skip
        room = DEVICE_ROWS * (-(-(PROMPT + tokens) // 16) + 1) + 4
        self.engine: PacedEngine = build_paced_core(
            config,
            MODEL,
            load_hardware("small"),
            PacedOptions(cache_bytes=1 << 16, plan=lambda plan: replace(plan, device_blocks=room)),
            clock=self.clock,
            pool=LatePool(lambda: self.late_s, self._host_s),
        )
        self.scheduler: Scheduler = self.engine.core._scheduler
        self.ways: Counter[str] = Counter()
        assert self.scheduler.prices is not None or strategy != "auto"
        params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        for number in range(requests):
            prompt = tuple((7 * i + number) % 100 + 1 for i in range(PROMPT))
            self.engine.core.add_request(EngineRequest(str(number), prompt, params))

    def _host_s(self, task: HostTask) -> float:
        op, program = task.entry.op, task.entry.program
        if op.kind is not OpKind.ATTEND:
            return APPEND_S
        rows = keys = 0
        for number in program.active(op):
            lane = program.lanes[number]
            assert isinstance(lane, PacedLane)
            work = lane.work.attention(Tier.HOST, op.layer)
            rows, keys = rows + work.tokens, keys + work.keys
        assert self.scheduler.prices is not None
        return self.scheduler.prices.host.seconds(TierWork(rows, keys, keys))

    def run(self, until_s: float | None = None) -> int:
        """To the end, or until then; tokens given out."""
        tokens = 0
        while self.scheduler.has_work and (until_s is None or self.clock.now() < until_s):
            tokens += sum(len(each.token_ids) for each in self.engine.core.step())
            self.ways[self.scheduler.last_way] += 1
        self.scheduler.check()
        return tokens

    def ended_s(self) -> float:
        """When all is done."""
        self.run()
        return self.clock.now()

    @property
    def timer(self) -> HandOverTimer:
        timer = self.scheduler.hand_overs
        assert timer is not None
        return timer


def test_a_job_with_slow_hand_overs_ends_as_soon_as_on_the_accelerator_alone() -> None:
    alone = Job("gpu-only", 40)
    assert alone.scheduler.hand_overs is None
    slow = Job("auto", 40)
    assert slow.ended_s() < 1.02 * alone.ended_s()
    assert slow.ways[AWAY] > 0.8 * slow.ways.total()
    assert slow.timer.learner.known.decodes_s == pytest.approx(LATE_S, rel=0.1)


def test_without_learning_it_would_take_twice_as_long() -> None:
    blind, alone = Job("auto", 16, 200), Job("gpu-only", 16, 200)
    leave_out(blind)
    assert blind.ended_s() > 2 * alone.ended_s()


@pytest.mark.parametrize("tokens", [100, 300])
def test_where_queues_are_not_idle_nothing_is_learnt_and_no_choice_is_another(tokens: int) -> None:
    learning, blind = (Job("auto", 12, tokens, late_s=0.0) for _ in range(2))
    leave_out(blind)
    assert learning.ended_s() == blind.ended_s()
    assert learning.ways == blind.ways
    assert learning.timer.learner.known == learning.timer.learner.now == NO_HAND_OVERS


def test_it_goes_back_to_the_host_when_hand_overs_have_become_cheap() -> None:
    job = Job("auto", 60, late_s=0.001)
    job.run(0.7)
    assert job.scheduler.last_way == AWAY
    job.late_s = 0.0
    until_s = 8.0
    while job.timer.learner.known.decodes_s and job.clock.now() < until_s:
        job.run(job.clock.now() + 0.01)
    assert job.clock.now() < until_s
    found = job.ways.copy()
    job.run(job.clock.now() + 0.5)
    assert job.ways["ride-along"] > found["ride-along"]
    assert job.ways[AWAY] == found[AWAY]
    job.run()
    assert not job.scheduler.has_work


def leave_out(job: Job) -> None:
    """Have a job's engine learn nothing."""
    job.scheduler.hand_overs = None
    job.scheduler._observer._hand_overs = None
