"""The whole engine on the paced emulator: in virtual time, and once, coarsely, in real time."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.fakes.paced import TINY

from tandem.bench.steady_start import DEVICE, HOST, SteadyStart, fill
from tandem.engine.building.build import build_engine_core
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.plan.online import OnlinePlan
from tandem.plan.program import StepProgram
from tandem.plan.validator import Placed, validate_sequence
from tandem.runtime.paced.executor import StalledError
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError, EngineDeadError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams

SMALL = load_hardware("small")
CASES = [
    ("gpu-only", "device"),
    ("ride-along", "host"),
    ("ride-along", "split"),
    ("rendezvous", "host"),
    ("rendezvous", "split"),
    ("asymmetric", "host"),
    ("asymmetric", "split"),
]


def config(strategy: str, placement: str, **changes: object) -> EngineConfig:
    base = EngineConfig(
        "tiny",
        dtype="float32",
        strategy=strategy,
        kv_placement=placement,  # pyright: ignore[reportArgumentType]
        gpu_memory="64MiB",
        cpu_memory="16MiB",
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
    )
    return replace(base, **changes)


class Run:
    """An engine in virtual time that keeps what it submits."""

    def __init__(
        self,
        strategy: str,
        placement: str,
        attention_s: float = 2e-4,
        *,
        steady: bool = False,
        device_blocks: int | None = None,
        changes: dict[str, object] | None = None,
        **options: object,
    ) -> None:
        def bounds(plan: OnlinePlan) -> OnlinePlan:
            blocks = plan.device_blocks if device_blocks is None else device_blocks
            return replace(plan, max_join_wait_s=1e-5, device_blocks=blocks)

        self.clock = VirtualClock()
        self.submitted: list[StepProgram] = []
        pool = VirtualPool(lambda task: self._host_s(task, attention_s), work=True)
        self.engine: PacedEngine = build_paced_core(
            config(strategy, placement, **(changes or {})),
            TINY,
            SMALL,
            PacedOptions(
                cache_bytes=1 << 16,
                plan=bounds,
                **options,  # pyright: ignore[reportArgumentType]
            ),
            strategy=SteadyStart(make_strategy(strategy)) if steady else None,
            clock=self.clock,
            pool=pool,
        )
        self.num_attended = 0
        submit = self.engine.executor.submit

        def keep(program: StepProgram) -> None:
            self.submitted.append(program)
            submit(program)

        self.engine.executor.submit = keep

    def _host_s(self, task: HostTask, attention_s: float) -> float:
        attends = task.entry.op.kind.value == "attend"
        self.num_attended += attends
        return attention_s if attends else 1e-5

    def add(self, number: int, length: int, max_tokens: int) -> None:
        prompt = tuple(range(1, length + 1))
        params = SamplingParams(max_tokens=max_tokens)
        self.engine.core.add_request(EngineRequest(str(number), prompt, params))

    def finish(self) -> dict[str, list[int]]:
        tokens: dict[str, list[int]] = {}
        for _ in range(5000):
            if not self.engine.core.has_work():
                return tokens
            for output in self.engine.core.step():
                tokens.setdefault(output.request_id, []).extend(output.token_ids)
                assert output.finish_reason in (None, FinishReason.LENGTH)
        raise AssertionError("the run does not end")


def placed(programs: list[StepProgram]) -> Iterator[Placed]:
    """Programs with the lanes' buffers; a sampling program reads its forward program's lanes."""
    forward: StepProgram | None = None
    for program in programs:
        if program.lanes:
            forward = program
            yield Placed(program.template, tuple(slot.cohort_id for slot in program.lanes))
        elif program.sampling:
            assert forward is not None
            lanes = [forward.lanes[lane].cohort_id for lane in program.sampling_lanes]
            yield Placed(program.template, tuple(lanes))
        else:
            yield Placed(program.template, ())


@pytest.mark.parametrize(("strategy", "placement"), CASES)
def test_lengths_are_forced_and_tokens_never_end_a_sequence(strategy: str, placement: str) -> None:
    run = Run(strategy, placement)
    for number in range(6):
        run.add(number, 30 + number, 5 + number)
    tokens = run.finish()
    assert {name: len(ids) for name, ids in tokens.items()} == {str(n): 5 + n for n in range(6)}
    assert not {0, 7} & {token for ids in tokens.values() for token in ids}
    assert (run.num_attended > 0) == (placement != "device")
    stats = run.engine.core.stats()
    assert stats.accelerator.startswith("paced emulator")
    assert all(tier.held_blocks == tier.leased_blocks == 0 for tier in stats.tiers)


@pytest.mark.parametrize(("strategy", "placement"), CASES)
def test_what_was_submitted_is_a_complete_sequence_of_programs(
    strategy: str, placement: str
) -> None:
    """Guards do not change shapes, so an exact interpreter could run the very same sequence."""
    run = Run(strategy, placement)
    for number in range(6):
        run.add(number, 25 + 3 * number, 6)
    run.finish()
    assert len(run.submitted) > 10
    validate_sequence(list(placed(run.submitted)))


@pytest.mark.parametrize(("strategy", "placement"), CASES)
def test_the_plain_loop_gives_the_same_tokens_in_more_time(strategy: str, placement: str) -> None:
    results: list[tuple[float, dict[str, list[int]]]] = []
    for overlap in (True, False):
        run = Run(strategy, placement, changes={"overlap": overlap})
        for number in range(3):
            run.add(number, 30, 8)
        tokens = run.finish()
        results.append((run.clock.time_s, tokens))
    assert results[0][1] == results[1][1]
    if strategy != "asymmetric":  # whose cohorts may begin with another sweep, and be others
        assert results[0][0] <= results[1][0]


def test_preempted_sequences_swap_over_the_link_and_finish() -> None:
    swap = {"preemption_mode": "swap", "enable_prefix_caching": False}
    run = Run("gpu-only", "device", device_blocks=10, changes=swap)
    for number in range(4):
        run.add(number, 40, 60)
    assert all(len(ids) == 60 for ids in run.finish().values())
    stats = run.engine.core.stats()
    assert stats.preemptions > 0
    assert stats.transfers > 0
    assert run.engine.executor.report().h2d_busy > 0


def test_virtual_runs_are_deterministic_with_jitter_and_perturbed_truth() -> None:
    def once() -> tuple[dict[str, list[int]], float]:
        truth = Perturbation(seed=4, terms=0.3, tile_rows=8, jitter=0.1)
        run = Run("rendezvous", "split", perturbation=truth)
        for number in range(4):
            run.add(number, 30, 8)
        return run.finish(), run.clock.time_s

    assert once() == once()


def test_perturbed_truth_differs_from_the_description() -> None:
    times: list[float] = []
    for truth in (Perturbation(), Perturbation(seed=1, terms=0.3)):
        run = Run("gpu-only", "device", perturbation=truth)
        run.add(0, 30, 20)
        run.finish()
        times.append(run.clock.time_s)
    assert times[0] != pytest.approx(times[1], rel=0.01)


def steady_rate(strategy: str, host_rows: int, attention_s: float) -> tuple[Run, float, float]:
    """Decode four sequences on the device and some on the host.

    Returns: the run, tokens per second of all sequences, and of the device's.
    """
    run = Run(strategy, "auto", attention_s, steady=True)
    fill(run.engine, {DEVICE: 4, HOST: host_rows}, context=40, max_tokens=300)
    begin, tokens, of_device = run.clock.time_s, 0, 0
    while of_device < 400:
        for output in run.engine.core.step():
            tokens += len(output.token_ids)
            of_device += output.request_id.startswith(DEVICE)
    elapsed_s = run.clock.time_s - begin
    return run, tokens / elapsed_s, of_device / elapsed_s


def test_a_cohort_that_is_ready_in_time_adds_tokens() -> None:
    _, alone, _ = steady_rate("gpu-only", 0, 0.0)
    run, hybrid, _ = steady_rate("rendezvous", 4, attention_s=1e-4)
    assert hybrid > 1.05 * alone
    assert run.engine.core.stats().cohort_joins > 0


def test_a_cohort_that_is_late_holds_the_device_back_by_the_bound_at_most() -> None:
    _, alone, _ = steady_rate("gpu-only", 0, 0.0)
    run, _, of_device = steady_rate("rendezvous", 4, attention_s=20 * 4 / alone)
    stats = run.engine.core.stats()
    assert stats.cohort_waits > 0
    assert of_device > 0.95 * alone


def test_device_time_is_what_the_description_says() -> None:
    """A single row alone: the time between tokens is the sum of the sweep's operations."""
    run = Run("gpu-only", "device")
    run.add(0, 20, 40)
    while run.engine.core.stats().generated_tokens < 10:
        run.engine.core.step()
    run.engine.executor.begin_window()
    begin = run.clock.time_s
    while run.engine.core.stats().generated_tokens < 35:
        run.engine.core.step()
    report = run.engine.executor.report()
    sweep_s = (run.clock.time_s - begin) / 25
    # PRE and POST of three layers, and per layer append, attend, merge; embedding, head, sampling
    assert 6 * report.stage_s < sweep_s < 12 * report.stage_s
    assert report.accel_busy == pytest.approx(1.0, abs=0.02)
    assert report.valid, report.reasons
    assert report.contention == "modelled"
    assert report.host_read_bytes == 0


def test_a_busy_scheduler_s_lateness_is_told_apart_from_the_emulator_s() -> None:
    run = Run("gpu-only", "device")
    run.add(0, 20, 40)
    while run.engine.core.stats().generated_tokens < 10:
        run.engine.core.step()
    run.engine.executor.begin_window()
    while run.engine.core.stats().generated_tokens < 35:
        run.engine.core.step()
        run.clock.time_s += 1.0  # spent on the next step, while the present one ends
    report = run.engine.executor.report()
    assert report.poll_lateness_p95_s > 0.5
    assert report.waking_p95_s == 0.0
    assert not report.valid, "the whole is judged"


def test_fast_forward_takes_no_time_and_no_host_work() -> None:
    run = Run("ride-along", "host")
    run.engine.executor.fast_forward(True)
    run.add(0, 60, 10)
    run.finish()
    assert run.clock.time_s == 0.0
    assert run.num_attended == 0


def test_text_commands_refuse_the_paced_emulator() -> None:
    with pytest.raises(ConfigError, match="returns no text"):
        build_engine_core(EngineConfig("demo", accelerator="emulated:paced"))


@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous"])
def test_real_time_neither_drifts_nor_stands_still(strategy: str) -> None:
    """Wide bounds: this runs on shared cores. Drift would show in every repeat."""
    engine = build_paced_core(
        config(strategy, "split", gpu_memory="64MiB"),
        TINY,
        SMALL,
        PacedOptions(cache_bytes=1 << 16),
    )
    try:
        ratios: list[float] = []
        for repeat in range(3):
            params = SamplingParams(max_tokens=12)
            prompt = tuple(range(1, 40))
            engine.core.add_request(EngineRequest(f"r{repeat}", prompt, params))
            engine.executor.begin_window()
            begin = time.perf_counter()
            count = 0
            while engine.core.has_work():
                count += sum(len(o.token_ids) for o in engine.core.step())
            wall_s = time.perf_counter() - begin
            assert count == 12
            report = engine.executor.report()
            ratios.append(report.wall_s / wall_s)
            assert 0 < report.accel_busy <= 1
            assert 0 < report.cpu_busy <= 1
        assert statistics.median(ratios) == pytest.approx(1.0, abs=0.1)
    finally:
        engine.core.close()


def run_to_the_end(engine: PacedEngine) -> None:
    while engine.core.has_work():
        engine.core.step()


@pytest.mark.parametrize("raises", ["run_task", "look"])
def test_what_raises_on_the_worker_s_thread_ends_the_engine(raises: str) -> None:
    """A host operation, or what the worker finds when it looks for one: nobody waits for it."""
    engine = build_paced_core(
        config("ride-along", "host"), TINY, SMALL, PacedOptions(cache_bytes=1 << 16)
    )

    def fail(*_: HostTask) -> None:
        raise ValueError("broken page")

    setattr(engine.executor, raises, fail)
    try:
        params = SamplingParams(max_tokens=4)
        engine.core.add_request(EngineRequest("r", (1, 2, 3), params))
        with pytest.raises(EngineDeadError, match="ValueError: broken page"):
            run_to_the_end(engine)
    finally:
        engine.executor.close()


def test_waiting_for_nothing_is_an_error() -> None:
    run = Run("gpu-only", "device")
    with pytest.raises(StalledError):
        run.engine.executor.poll(wait=True)
