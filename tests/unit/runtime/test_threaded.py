"""The threaded executor: failures end it without a hang, whoever waits for whom."""

import threading

import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.support.mutations import Selector, is_op
from tests.support.script import drain, run_all
from tests.support.setups import Setup

from tandem.plan.program import OpKind, Part, Queue
from tandem.runtime import threaded
from tandem.runtime.running import Running
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

SPLIT = Setup(
    strategy="ride-along",
    kv_placement="split",
    device_blocks=24,
    host_blocks=24,
    executor="threaded",
)
REQUEST = EngineRequest(
    "r", tuple(range(1, 41)), SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
)
OPERATIONS = {
    "stage": is_op(OpKind.STAGE, Part.PRE, layer=1),
    "copy": is_op(OpKind.COPY, Part.QKV),
    "host attention": is_op(OpKind.ATTEND, queue=Queue.CPU),
    "upload": is_op(OpKind.COPY, Part.PARTIAL),
    "sampling": is_op(OpKind.SAMPLE),
    "tokens": is_op(OpKind.COPY, Part.TOKENS),
}


def executor_threads() -> list[threading.Thread]:
    names = {f"tandem-{queue.name.lower()}" for queue in Queue}
    return [thread for thread in threading.enumerate() if thread.name in names]


def break_operation(engine: TestEngine, select: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    run = engine.machine.runner.run

    def failing(running: Running) -> None:
        if select(running.op):
            raise ZeroDivisionError("broken on purpose")
        run(running)

    monkeypatch.setattr(engine.machine.runner, "run", failing)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_raises_ends_the_engine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threaded, "_LIVENESS_CHECK_S", 0.05)
    with toy_engine(SPLIT) as engine:
        break_operation(engine, OPERATIONS[name], monkeypatch)
        engine.core.add_request(REQUEST)
        with pytest.raises(EngineDeadError, match="ZeroDivisionError: broken on purpose"):
            drain(engine.core)
    assert not executor_threads()


def test_closing_in_the_middle_ends_all_threads() -> None:
    with toy_engine(SPLIT) as engine:
        engine.core.add_request(REQUEST)
        for _ in range(3):
            engine.core.step()
        assert executor_threads()
    assert not executor_threads()


def test_a_join_that_comes_too_late_is_refused_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # two rows stay on the device for long, so that the sweep has other work than the cohort
    setup = Setup(strategy="rendezvous", device_blocks=6, host_blocks=24, executor="threaded")
    requests = [
        EngineRequest(
            str(length),
            tuple((3 * i + length) % 49 + 1 for i in range(length)),
            SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True),
        )
        for length, max_tokens in ((10, 30), (12, 30), (26, 12))
    ]
    with toy_engine(Setup()) as engine:
        expected = run_all(engine.core, requests)
    with toy_engine(setup) as engine:
        wait = engine.machine.cohort_wait
        refused = 0

        def impatient(running: Running, timeout_s: float | None) -> bool:
            nonlocal refused
            if timeout_s is not None and engine.machine.is_guarded(running) and refused < 5:
                refused += 1
                return False
            return wait(running, timeout_s)

        machine = _PatientMachine(engine, impatient)
        monkeypatch.setattr(engine.executor, "_machine", machine)
        results = run_all(engine.core, requests)
        assert engine.stats.cohort_waits == refused == 5
        engine.check_idle()
    assert {k: r.token_ids for k, r in results.items()} == {
        k: r.token_ids for k, r in expected.items()
    }


class _PatientMachine:
    """A machine whose waits for cohorts are the test's."""

    def __init__(self, engine: TestEngine, cohort_wait) -> None:
        self._machine = engine.machine
        self.cohort_wait = cohort_wait

    def __getattr__(self, name: str) -> object:
        return getattr(self._machine, name)
