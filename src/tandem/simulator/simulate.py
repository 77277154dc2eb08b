"""Simulate a plan under a workload."""

from collections.abc import Callable
from dataclasses import replace

from tandem.planner.fluid.queues import Span
from tandem.simulator.build import Machine, Planned, build
from tandem.simulator.loop import Loop
from tandem.simulator.outcome import Outcome, outcome_of
from tandem.simulator.record import Record
from tandem.simulator.skip import Skipper
from tandem.spec.config import PreemptionMode
from tandem.spec.workload import Workload


def simulate(
    planned: Planned,
    workload: Workload,
    seed: int = 0,
    *,
    skip: bool = True,
    on_span: Callable[[Span], None] | None = None,
    ttft_bound_s: float | None = None,
    preemption: PreemptionMode | None = None,
) -> Outcome:
    """Serve the workload's requests in virtual time: what `recorded` sums up.

    Args as there.
    """
    _, outcome = recorded(
        planned,
        workload,
        seed,
        skip=skip,
        on_span=on_span,
        ttft_bound_s=ttft_bound_s,
        preemption=preemption,
    )
    return outcome


def recorded(
    planned: Planned,
    workload: Workload,
    seed: int = 0,
    *,
    skip: bool = True,
    on_span: Callable[[Span], None] | None = None,
    ttft_bound_s: float | None = None,
    preemption: PreemptionMode | None = None,
) -> tuple[Record, Outcome]:
    """Serve the workload's requests in virtual time; every moment of theirs, and the sum.

    Those of a question for one request at a time come one after the other, unless they have times.

    Args:
        skip: count sweeps instead of compiling them, and take runs of steps in which all rows only
            decode without the scheduler; what happens, and when, is the same.
        on_span: told when a group of operations ran.
        ttft_bound_s: within which first tokens are wanted; prompts are read in an order by which
            most are in time.
        preemption: what becomes of preempted KV; None: as an engine has it.
    """
    machine = build(planned, seed, on_span, ttft_bound_s, preemption=preemption, counted=skip)
    in_turn = planned.question.objective == "latency" and not workload.duration_s
    record = Record(() if in_turn else workload.requests)
    scheduler, executor, token = machine.scheduler, machine.executor, machine.token_id
    windows = planned.question.model.layer_windows
    skipper = Skipper(scheduler, executor, record, token, windows) if skip else None
    loop = Loop(scheduler, executor, record, token, skipper)
    loop.run()
    for shape in workload.requests if in_turn else ():
        loop.add((replace(shape, arrival_s=executor.now_s),))
        loop.run()
    return record, outcome_of_run(planned, machine, record, loop.skipped_steps, ttft_bound_s)


def outcome_of_run(
    planned: Planned,
    machine: Machine,
    record: Record,
    skipped_steps: int,
    ttft_bound_s: float | None = None,
) -> Outcome:
    """Sum up a run of the machine that has ended."""
    return outcome_of(
        record,
        machine.executor.queues,
        planned.question.hardware.host.pool_bytes_per_s,
        machine.scheduler.running.num_preemptions,
        machine.executor.sweeps,
        skipped_steps,
        ttft_bound_s,
        host_only=planned.question.host_only,
    )
