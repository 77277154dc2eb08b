"""The CPU queue on native threads: order, failures, aborts, resizing."""

import threading

import pytest
from tests.support.engines import TestEngine, model_engine, tiny_model
from tests.support.script import drain, run_all
from tests.support.setups import ExecutorKind, Setup

from tandem.kernels import native
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import CompiledKernels
from tandem.plan.program import OpKind, Queue
from tandem.runtime import threaded
from tandem.runtime.host_tasks import HostTask, HostTasks, SweepTask
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
REQUESTS = [
    EngineRequest(str(n), tuple((5 * i + n) % 49 + 1 for i in range(n)), GREEDY)
    for n in (3, 20, 41)
]


def setup(strategy: str, executor: ExecutorKind) -> Setup:
    rides = strategy == "ride-along"
    return Setup(
        strategy=strategy,
        kv_placement="split" if rides else "host",
        device_blocks=24 if rides else 0,
        host_blocks=32,
        executor=executor,
        max_num_batched_tokens=24,
    )


def tokens_of(engine: TestEngine) -> dict[str, list[int]]:
    return {k: list(r.token_ids) for k, r in run_all(engine.core, REQUESTS).items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    with model_engine(tiny_model(), Setup()) as engine:
        return tokens_of(engine)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Running]:
    """Operations that went to native threads."""
    seen: list[Running] = []
    prepare = HostTasks.prepare

    def noting(self: HostTasks, running: Running) -> HostTask | SweepTask:
        seen.append(running)
        return prepare(self, running)

    monkeypatch.setattr(HostTasks, "prepare", noting)
    return seen


@pytest.mark.parametrize("executor", ["threaded", "exact"])
@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous"])
def test_the_cpu_queue_runs_on_native_threads_and_tokens_stay_the_same(
    strategy: str,
    executor: ExecutorKind,
    expected: dict[str, list[int]],
    submitted: list[Running],
) -> None:
    with model_engine(tiny_model(), setup(strategy, executor)) as engine:
        assert tokens_of(engine) == expected
        engine.check_idle()
    assert {running.op.kind for running in submitted} == {OpKind.APPEND, OpKind.ATTEND}


@pytest.mark.timeout(60)
def test_operations_are_submitted_before_their_inputs_are_there(
    monkeypatch: pytest.MonkeyPatch, submitted: list[Running], expected: dict[str, list[int]]
) -> None:
    """The accelerator's first operation waits until the whole sweep's are with native threads."""
    with model_engine(tiny_model(), setup("ride-along", "threaded")) as engine:
        run, layers = engine.machine.runner.run, 2
        ahead = threading.Event()

        def patient(running: Running) -> None:
            hosted = any(op.queue is Queue.CPU for op in running.context.program.template.ops)
            if not ahead.is_set() and hosted and running.op.kind is OpKind.STAGE:
                while len(submitted) < 2 * layers:
                    threading.Event().wait(1e-3)
                ahead.set()
            run(running)

        monkeypatch.setattr(engine.machine.runner, "run", patient)
        assert tokens_of(engine) == expected
    assert ahead.is_set()


def break_native_work(monkeypatch: pytest.MonkeyPatch, engine: TestEngine) -> None:
    """Attention of the second layer fails while it runs, on a thread of the pool."""
    attend_tasks = HostTasks._attend

    def failing(self: HostTasks, running: Running, lane: object) -> list[_native.Task]:
        if running.op.layer == 1:
            return [FailingTask()]  # pyright: ignore[reportReturnType]
        return attend_tasks(self, running, lane)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(HostTasks, "_attend", failing)


class FailingTask:
    """Ends with an error; raises its signal all the same, as the pool does."""

    def __init__(self) -> None:
        self._pool = _native.Pool(1)
        self._relay: _native.Task = _native.nothing(self._pool)

    def submit(self, after: object, then: object) -> None:
        self._relay.submit(after, then)  # pyright: ignore[reportArgumentType]

    def wait(self) -> None:
        self._relay.wait()
        raise ZeroDivisionError("broken on purpose")

    def cancel(self) -> bool:
        return self._relay.cancel()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("executor", ["threaded", "exact"])
def test_an_error_in_native_work_ends_the_engine_and_leaves_the_pool_usable(
    executor: ExecutorKind, monkeypatch: pytest.MonkeyPatch, expected: dict[str, list[int]]
) -> None:
    monkeypatch.setattr(threaded, "_LIVENESS_CHECK_S", 0.05)
    with model_engine(tiny_model(), setup("ride-along", executor)) as engine:
        kernels = engine.machine.runner.kernels[Tier.HOST]
        assert isinstance(kernels, CompiledKernels)
        with monkeypatch.context() as broken:
            break_native_work(broken, engine)
            engine.core.add_request(REQUESTS[2])
            with pytest.raises(EngineDeadError, match="ZeroDivisionError: broken on purpose"):
                drain(engine.core)
        task = kernels.nothing()
        task.submit()
        assert task.wait(10)
    assert "tandem-cpu-report" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("queue", ["device", "copy"])
def test_work_whose_inputs_never_come_is_taken_back(
    queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threaded, "_LIVENESS_CHECK_S", 0.05)
    kind = OpKind.STAGE if queue == "device" else OpKind.COPY
    with model_engine(tiny_model(), setup("ride-along", "threaded")) as engine:
        run = engine.machine.runner.run

        def failing(running: Running) -> None:
            if running.op.kind is kind and running.op.layer == 1:
                raise ZeroDivisionError("broken on purpose")
            run(running)

        monkeypatch.setattr(engine.machine.runner, "run", failing)
        engine.core.add_request(REQUESTS[2])
        with pytest.raises(EngineDeadError, match="ZeroDivisionError: broken on purpose"):
            drain(engine.core)


@pytest.mark.parametrize("executor", ["threaded", "exact"])
@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous"])
def test_aborts_and_resizing_in_the_middle_leave_nothing_behind(
    strategy: str, executor: ExecutorKind, expected: dict[str, list[int]]
) -> None:
    with model_engine(tiny_model(), setup(strategy, executor)) as engine:
        kernels = engine.machine.runner.kernels[Tier.HOST]
        assert isinstance(kernels, CompiledKernels)
        for request in REQUESTS:
            engine.core.add_request(request)
        for step, threads in enumerate((1, 3, 2)):
            for _ in range(3):
                engine.core.step()
            kernels.pool.resize(threads)
            engine.core.abort(REQUESTS[step].request_id)
        drain(engine.core)
        engine.check_idle()
        assert tokens_of(engine) == expected
