"""Predictions corrected by measured times, on the paced emulator in virtual time."""

from dataclasses import replace

import pytest
from tests.fakes.paced import TINY

from tandem.cost.calibration import Calibrator
from tandem.cost.step_prices import AttentionPrice, TermTimes, TierWork
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.plan.program import OpKind, Queue, StepProgram
from tandem.runtime.paced.costs import PacedLane
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.perturbed_rates import Perturbation, PerturbedRates
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.scheduler.scheduler import Scheduler
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

MODEL = replace(
    TINY, hidden_size=1024, num_heads=8, num_kv_heads=8, head_dim=128, intermediate_size=16384,
    max_positions=2048,
)  # fmt: skip
PROMPT, ROWS = 40, 4
SLOW = 6.0
APPEND_S = 1e-6
AS_DESCRIBED = Perturbation()


class Served:
    """Four requests on the accelerator and `hosted` on the host, which decode; the CPU takes
    `slowness` times as long as the price list says.
    """

    def __init__(
        self, *, calibrate: bool, hosted: int = ROWS, truth: Perturbation = AS_DESCRIBED
    ) -> None:
        self.slowness = 1.0
        config = EngineConfig(
            "m", dtype="float16", strategy="auto", gpu_memory="1GiB", cpu_memory="400MiB",
            block_size=16, max_num_seqs=2 * ROWS, max_num_batched_tokens=2048, max_model_len=2048,
            max_host_seqs=ROWS, enable_prefix_caching=False, calibrate=calibrate,
        )  # fmt: skip
        options = PacedOptions(
            cache_bytes=1 << 16,
            plan=lambda plan: replace(plan, max_device_seqs=ROWS),
            perturbation=truth,
        )
        self.engine: PacedEngine = build_paced_core(
            config,
            MODEL,
            load_hardware("small"),
            options,
            clock=VirtualClock(),
            pool=VirtualPool(self._host_s),
        )
        self.scheduler: Scheduler = self.engine.core._scheduler
        assert self.scheduler.prices is not None
        self._said: AttentionPrice = self.scheduler.prices.host
        self._sweeps = 0
        submit = self.engine.executor.submit

        def count(program: StepProgram) -> None:
            self._sweeps += bool(program.lanes)
            submit(program)

        self.engine.executor.submit = count
        params = SamplingParams(max_tokens=1500, temperature=0.0)
        for number in range(ROWS + hosted):
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
        return self.slowness * self._said.seconds(TierWork(rows, keys, keys))

    def hosted_tokens(self, steps: int) -> int:
        """Tokens of requests on the host in so many steps."""
        found, last = 0, self._sweeps + steps
        rows = self.scheduler.rows
        while self._sweeps < last:
            for output in self.engine.core.step():
                sequence = self.scheduler.running.find(output.request_id)
                assert sequence is not None
                found += len(output.token_ids) * bool(rows.num_host_blocks[sequence.row])
        return found


def test_a_slowed_cpu_gets_fewer_requests_within_ten_steps_and_back() -> None:
    served = Served(calibrate=True)
    served.hosted_tokens(20)
    assert served.hosted_tokens(10) == 10 * ROWS
    served.slowness = SLOW
    slowed = [served.hosted_tokens(1) for _ in range(10)]
    assert sum(slowed) < 0.75 * 10 * ROWS  # some were under way
    assert sum(slowed[4:]) <= 6 * ROWS / 4
    assert served.hosted_tokens(10) <= 10 * ROWS / 4
    served.slowness = 1.0
    back = [served.hosted_tokens(1) for _ in range(10)]
    assert back[8:] == [ROWS, ROWS]
    assert served.hosted_tokens(10) == 10 * ROWS
    served.engine.core.close()


def test_without_calibration_a_slowed_cpu_holds_up_every_step() -> None:
    served = Served(calibrate=False)
    served.hosted_tokens(20)
    served.slowness = SLOW
    served.hosted_tokens(10)
    assert served.hosted_tokens(10) == 10 * ROWS
    assert served.scheduler.timer is None
    served.engine.core.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_an_accelerator_that_is_not_as_described_is_found_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # without cohorts, since beside them the accelerator's part is not compared
    served = Served(calibrate=True, hosted=0, truth=Perturbation(seed, terms=0.4))
    timer = served.scheduler.timer
    assert timer is not None
    calibrator = timer.calibrator
    pairs: list[tuple[TermTimes, TermTimes]] = []
    observe = Calibrator.observe

    def keep(self: Calibrator, said: TermTimes, measured: TermTimes) -> None:
        if said.linear_s:
            pairs.append((said, measured))
        observe(self, said, measured)

    monkeypatch.setattr(Calibrator, "observe", keep)
    served.hosted_tokens(80)
    (first, first_measured), (last, measured) = pairs[0], pairs[-1]
    linear, attention = calibrator.factors.linear, calibrator.factors.attention
    assert abs(first.linear_s / first_measured.linear_s - 1) > 0.05
    assert abs(linear * last.linear_s / measured.linear_s - 1) < 0.02
    assert abs(attention * last.attention_s / measured.attention_s - 1) < 0.02
    served.engine.core.close()


@pytest.mark.parametrize("seed", [2, 22])  # slow one way, fast the other
def test_a_link_that_is_not_as_described_is_found_out_from_copies(seed: int) -> None:
    """Requests that are copied: of four at once, there is room for two and a half at their ends."""
    config = EngineConfig(
        "m", dtype="float16", strategy="gpu-only", gpu_memory="1GiB", cpu_memory="400MiB",
        block_size=16, max_num_seqs=ROWS, max_num_batched_tokens=2048, max_model_len=512,
        enable_prefix_caching=False, preemption_mode="mix", calibrate=True,
    )  # fmt: skip
    truth, hardware = Perturbation(seed, terms=0.4), load_hardware("small")
    blocks = 5 * (PROMPT + 100) // 2 // 16
    options = PacedOptions(
        cache_bytes=1 << 16,
        plan=lambda plan: replace(plan, device_blocks=blocks),
        perturbation=truth,
    )
    pool = VirtualPool(lambda _: APPEND_S)
    engine = build_paced_core(config, MODEL, hardware, options, clock=VirtualClock(), pool=pool)
    scheduler: Scheduler = engine.core._scheduler
    assert scheduler.prices is not None
    said = scheduler.prices.pages
    params = SamplingParams(max_tokens=100, temperature=0.0, ignore_eos=True)
    for number in range(16 * ROWS):
        prompt = tuple((7 * i + number) % 100 + 1 for i in range(PROMPT))
        engine.core.add_request(EngineRequest(str(number), prompt, params))
    while engine.core.has_work():
        engine.core.step()
    found = scheduler.prices.pages
    engine.core.close()
    true = PerturbedRates(hardware, DType.FLOAT16, truth).links
    described = PerturbedRates(hardware, DType.FLOAT16, AS_DESCRIBED).links
    for factor, queue in (
        (found.block_in_s / said.block_in_s, Queue.H2D),
        (found.block_out_s / said.block_out_s, Queue.D2H),
    ):
        slower = described[queue].bytes_per_s / true[queue].bytes_per_s
        assert abs(slower - 1) > 0.15
        assert abs(factor / slower - 1) < 0.15  # a copy's start deviates by a factor of its own


def test_where_nothing_is_chosen_by_predicted_time_it_is_refused() -> None:
    config = EngineConfig(
        "m", dtype="float16", strategy="ride-along", gpu_memory="1GiB", cpu_memory="400MiB",
        max_model_len=2048, enable_prefix_caching=False, calibrate=True,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="by which nothing is chosen here: use --strategy auto"):
        build_paced_core(config, MODEL, load_hardware("small"), PacedOptions())
