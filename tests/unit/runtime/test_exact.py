"""The exact executor: failures are reported, deadlocks are named, refused joins do no harm."""

from dataclasses import replace

import pytest
from tests.support.engines import model_engine, tiny_model, toy_engine
from tests.support.script import drain, run_all
from tests.support.setups import Setup

from tandem.plan.events import Failed, LaneAdvanced, StepRetired
from tandem.plan.program import (
    OpKind,
    Part,
    ProgramOp,
    ProgramTemplate,
    Queue,
    SignalRef,
    StepProgram,
)
from tandem.runtime import exact
from tandem.runtime.exact import DeadlockError
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

EXACT = Setup(executor="exact")
# rows that stay on the device beside rows that go to the host: so that joins are guarded
MIXED = Setup(strategy="rendezvous", device_blocks=8, host_blocks=24, executor="exact")


def requests() -> list[EngineRequest]:
    params = SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True)
    prompts = [tuple((3 * i + n) % 50 for i in range(n)) for n in (30, 28, 26)]
    return [EngineRequest(str(i), prompt, params) for i, prompt in enumerate(prompts)]


def program_waiting_for(wait: SignalRef) -> StepProgram:
    op = ProgramOp(OpKind.STAGE, Queue.ACCEL, Part.HEAD, (), 0, 1, (wait,), (), ())
    return StepProgram(0, ProgramTemplate("test", (), (op,), ((Queue.ACCEL, 1),)))


def test_a_program_that_waits_for_itself_is_a_deadlock() -> None:
    with toy_engine(EXACT) as engine:
        engine.executor.submit(program_waiting_for(SignalRef(Queue.CPU, 1)))
        assert engine.executor.poll(wait=False) == []
        with pytest.raises(DeadlockError, match="stage head layer 0"):
            engine.executor.poll(wait=True)
        # nothing can end what is in flight: let the closing see an empty executor
        engine.executor.submit(cpu_program())
        assert engine.executor.poll(wait=True)


def cpu_program() -> StepProgram:
    op = ProgramOp(OpKind.STAGE, Queue.CPU, Part.HEAD, (), 0, 1, (), (), ())
    return StepProgram(1, ProgramTemplate("test", (), (op,), ((Queue.CPU, 1),)))


def test_a_wait_for_everything_earlier_is_none_at_the_start() -> None:
    with toy_engine(EXACT) as engine:
        engine.executor.submit(program_waiting_for(SignalRef(Queue.CPU, 0)))
        assert engine.executor.poll(wait=True) == [StepRetired(0)]


def test_activations_beyond_the_workspace_kill_the_engine_with_the_cause() -> None:
    setup = replace(EXACT, workspace_bytes=1000)
    with model_engine(tiny_model(), setup) as engine:
        for request in requests():
            engine.core.add_request(request)
        with pytest.raises(EngineDeadError, match=r"ArenaOverflowError: .* of 1000 are in use"):
            drain(engine.core)


def test_a_failed_executor_reports_once_and_stays_still() -> None:
    with toy_engine(replace(EXACT, workspace_bytes=8)) as engine:
        engine.core.add_request(requests()[0])
        for program in engine.scheduler.schedule():
            engine.executor.submit(program)
        events = engine.executor.poll(wait=True)
        assert [type(event) for event in events] == [Failed]
        assert engine.executor.poll(wait=False) == []


def test_a_refused_join_leaves_the_cohort_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with toy_engine(Setup()) as engine:
        expected = run_all(engine.core, requests())
    monkeypatch.setattr(exact, "_REFUSE_JOIN", 0.9)
    refusals: list[int] = []
    for seed in range(20):
        with toy_engine(replace(MIXED, executor_seed=seed)) as engine:
            observe = engine.scheduler.observe
            cohorts = engine.scheduler.cohorts

            def spy(events: list, observe=observe, cohorts=cohorts, engine=engine):
                before = {number: cohort.joined for number, cohort in cohorts.items()}
                steps = engine.scheduler.flight.steps
                refused = [
                    steps[event.step_id].cohorts[event.lane]
                    for event in events
                    if isinstance(event, LaneAdvanced) and not event.joined
                ]
                outputs = observe(events)
                for number in refused:
                    assert cohorts[number].joined == before[number]
                    assert cohorts[number].undecided == 0
                    refusals.append(before[number])
                return outputs

            monkeypatch.setattr(engine.scheduler, "observe", spy)
            results = run_all(engine.core, requests())
            engine.check_idle()
        assert {k: r.token_ids for k, r in results.items()} == {
            k: r.token_ids for k, r in expected.items()
        }
    # in the last layer a refusal also takes back the sampling
    assert {0, 1} <= set(refusals)
