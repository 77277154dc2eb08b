"""The runs that one call of `tandem simulate` asks for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from tandem.cli.plan_hardware import PlanHardware
from tandem.cli.planning import at_rate, read_question, read_workload
from tandem.cli.planning_options import GoalOptions, MemoryOptions, ServedOptions, StepOptions
from tandem.cli.simulate_sweep import HOST_CORES, RATES, Sweep, hardware_with_cores
from tandem.cli.simulate_text import Run
from tandem.plan.plan_file import PlanFile
from tandem.planner.fluid.queues import Span
from tandem.simulator.build import Planned, plan_for
from tandem.simulator.simulate import simulate
from tandem.spec.errors import ConfigError
from tandem.spec.units import parse_duration_s
from tandem.spec.workload import Workload

ALONE = "gpu-only"
"""The one policy of a host alone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be planned, or a plan that there is.

    Attributes:
        file: of the plan; the types and sizes are its own then.
    """

    model: str
    goal: GoalOptions
    memory: MemoryOptions
    steps: StepOptions
    strategy: str | None = None
    policy: str = "auto"
    file: PlanFile | None = None

    def by_plan(self, context: typer.Context, path: Path, hardware: PlanHardware) -> "Asked":
        """The same by a plan from a file.

        Raises:
            ConfigError: it cannot be read, is for something else, or an option contradicts it.
        """
        from tandem.cli.simulate_plan import plan_of, refuse_beside_plan, sizes_of

        refuse_beside_plan(context)
        file = plan_of(path, self.model, hardware)
        memory, steps = sizes_of(file)
        return replace(self, memory=memory, steps=steps, file=file)

    def of_host_alone(self) -> "Asked":
        """The same on a host alone, where there is one policy, as in `tandem plan`.

        Raises:
            ConfigError: another is asked for.
        """
        if self.strategy not in (None, "auto", ALONE) or self.policy not in ("auto", ALONE):
            raise ConfigError(
                "strategies and policies say what an accelerator and its host do; without one "
                "there is nothing to choose: leave --strategy and --policy out",
                param="strategy" if self.policy == "auto" else "policy",
            )
        return replace(self, strategy=None, policy=ALONE)

    def planned(self, hardware: PlanHardware, workload: Workload) -> Planned:
        """What serves the workload."""
        question = read_question(self.model, hardware, workload, self.memory, self.steps, self.goal)
        if self.file is None:
            return plan_for(question, self.strategy, self.policy)
        from tandem.cli.simulate_plan import planned_by

        return planned_by(self.file, question)


@dataclass(frozen=True, slots=True)
class Runs:
    """Plans, and serves requests by the plans."""

    asked: Asked
    hardware: PlanHardware
    served: ServedOptions
    ttft_bound: str | None

    def one(self, on_span: Callable[[Span], None] | None) -> Run:
        """No option is a list."""
        requested = self._requested(self.served.rate)
        return self._run(None, self.asked.planned(self.hardware, requested), requested, on_span)

    def each(self, sweep: Sweep) -> Iterator[Run]:
        """A run for each value."""
        if sweep.flag == RATES:
            yield from self._at_rates(sweep.values)
            return
        for value in sweep.values:
            hardware, generate = self.hardware, str(value)
            if sweep.flag == HOST_CORES:
                alone = hardware.host_only
                machine = hardware_with_cores(hardware.spec, int(value), host_only=alone)
                hardware, generate = replace(hardware, spec=machine), self.served.generate
            requested = self._requested(self.served.rate, generate)
            yield self._run(value, self.asked.planned(hardware, requested), requested)

    def _at_rates(self, rates: tuple[float, ...]) -> Iterator[Run]:
        """With one plan, for the highest rate, and a trace that is read once."""
        traced = self._requested(None) if self.served.trace is not None else None

        def coming(rate: float) -> Workload:
            return at_rate(traced, rate, self.served.seed) if traced else self._requested(rate)

        planned = self.asked.planned(self.hardware, coming(max(rates)))
        for rate in rates:
            yield self._run(rate, planned, coming(rate))

    def _requested(self, rate: float | None, generate: str | None = None) -> Workload:
        requested = self.served.one_run(rate, generate or self.served.generate)
        return read_workload(requested, self.asked.model)

    def _run(
        self,
        value: float | None,
        planned: Planned,
        workload: Workload,
        on_span: Callable[[Span], None] | None = None,
    ) -> Run:
        bound = self.ttft_bound
        bound_s = None if bound is None else parse_duration_s(bound, param="ttft_bound")
        seed = self.served.seed
        outcome = simulate(planned, workload, seed, on_span=on_span, ttft_bound_s=bound_s)
        return Run(value, planned, workload, outcome)
