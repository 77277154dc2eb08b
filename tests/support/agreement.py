"""What `tandem plan` says of a question beside what its requests see in `tandem simulate`.

`python -m tests.support.agreement [NAME...]` prints a line of JSON for every question, with the
ratios of what is predicted to what is simulated. A number names a question that is drawn with that
seed (`tests/support/random_cells.py`).
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from tandem.cli.plan_hardware import plan_hardware
from tandem.cli.planning import read_question, read_workload
from tandem.cli.planning_options import GoalOptions, MemoryOptions, RequestOptions, StepOptions
from tandem.planner.answer import choose, online_plan
from tandem.planner.arrivals import at_arrivals
from tandem.planner.in_step import live_through
from tandem.planner.option import Option
from tandem.planner.policies import strategy_alone
from tandem.planner.question import Lengths, Question
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import with_steps_that_fit
from tandem.simulator.build import Planned
from tandem.simulator.outcome import Outcome
from tandem.simulator.simulate import simulate
from tandem.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Cell:
    """A question.

    Attributes:
        load: of requests that come over time, their rate as a share of the plan's; 0: all at once.
        alone: requests come one after the other (`--objective latency`).
        seed: of drawn lengths and arrivals.
    """

    model: str
    accelerator: str
    host: str | None = None
    prompt: str = "512"
    generate: str = "128"
    requests: int = 200
    workload: str | None = None
    load: float = 0.0
    alone: bool = False
    tpot_bound: str | None = None
    strategy: str = "auto"
    seed: int = 0
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    steps: StepOptions = field(default_factory=StepOptions)

    def requested(self, rate: float | None) -> Workload:
        """Its requests."""
        options = RequestOptions(
            self.prompt, self.generate, self.requests, self.workload, rate, seed=self.seed
        )
        return read_workload(options, self.model)

    def question(self, workload: Workload) -> Question:
        """As `tandem plan` asks it."""
        goal = GoalOptions("latency" if self.alone else "throughput", self.tpot_bound)
        hardware = plan_hardware(self.accelerator, self.host, None)
        return read_question(self.model, hardware, workload, self.memory, self.steps, goal)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is compared; None where both sides do not mean the same by it.

    Attributes:
        job_s: until the last token of all. tokens_per_s: of requests that are out of step.
        tpot_s: a mean over requests, of both lanes. ttft_s: likewise, from their arrival.
        ttft_p90_s: nine of ten have theirs no later.
        running: requests under way.
    """

    job_s: float | None = None
    tokens_per_s: float | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    ttft_p90_s: float | None = None
    running: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Both sides of one cell."""

    plan: str
    predicted: Figures
    simulated: Figures

    def ratios(self) -> dict[str, float]:
        """Predicted over simulated."""
        other = asdict(self.simulated)
        return {
            name: value / other[name]
            for name, value in asdict(self.predicted).items()
            if value is not None
        }


def compare(cell: Cell) -> Compared:
    """Plan, and simulate what is planned."""
    workload = cell.requested(1.0 if cell.load else None)
    policy = strategy_alone(cell.strategy)
    question = with_steps_that_fit(cell.question(workload), policy)
    search = Search(question)
    option = choose(search, policy)
    if cell.load:
        # rows, and so the plan, are the same at any rate
        tokens_per_s = cell.load * option.prediction.rates.tokens_per_s
        workload = cell.requested(tokens_per_s / question.lengths.generated_tokens)
        question = replace(question, lengths=Lengths.of(workload))
    planned = Planned(question, option, online_plan(search, option))
    predicted = _predicted(cell, question, search, option)
    text = option.candidate.describe(question.model.num_layers)
    return Compared(text, predicted, _simulated(simulate(planned, workload)))


def _predicted(cell: Cell, question: Question, search: Search, option: Option) -> Figures:
    rates, plan = option.prediction.rates, option.candidate
    if cell.alone:
        return Figures(tpot_s=rates.tpot_s, ttft_s=rates.ttft_s)
    if not cell.load:
        job = live_through(search, option)
        return Figures(job.job_s, rates.tokens_per_s, job.mean_tpot_s)
    timed = Search(question)
    arrivals = at_arrivals(timed.predictor, timed.footprint, plan, rates)
    assert arrivals is not None
    there, seen = arrivals.on_host, arrivals.rates
    tpot_s = (1 - there) * seen.tpot_s + there * seen.worst_tpot_s  # over requests
    return Figures(
        job_s=arrivals.job_s,
        tpot_s=tpot_s,
        ttft_s=arrivals.ttft_s,
        ttft_p90_s=arrivals.ttft_p90_s,
        running=arrivals.rows,
    )


def _simulated(outcome: Outcome) -> Figures:
    return Figures(
        outcome.duration_s,
        outcome.steady_tokens_per_s,
        None if outcome.tpot is None else outcome.tpot.mean_s,
        outcome.ttft.mean_s,
        outcome.ttft.p90_s,
        outcome.mean_running,
    )


LLAMA8, LLAMA70 = "llama-3.1-8b", "llama-3.1-70b"
CELLS: dict[str, Cell] = {
    "8b-a10g-mixed": Cell(LLAMA8, "a10g", "g5.4xlarge", "100-900", "50-200", 600),
    "8b-a10g-few": Cell(LLAMA8, "a10g", generate="20", requests=12),
    "8b-t4-mixed": Cell(LLAMA8, "t4", "g4dn.4xlarge", "100-900", "50-200", 300),
    "8b-4090-exp": Cell(LLAMA8, "rtx4090", None, "exp:500", "exp:150", 800),
    "8b-a10g-code": Cell(LLAMA8, "a10g", None, workload="azure-code", requests=500),
    "8b-a10g-conv": Cell(LLAMA8, "a10g", None, workload="azure-conversation", requests=500),
    "7b-a100-osc": Cell("llama-2-7b", "a100-40", None, workload="osc", requests=800),
    "14b-4090-logn": Cell(
        "qwen3-14b", "rtx4090", None, "lognormal:600,500", "lognormal:200,150", 300
    ),
    "14b-t4-logn": Cell("qwen3-14b", "t4", None, "lognormal:600,500", "lognormal:100,80", 200),
    "32b-4090-mixed": Cell("qwen2.5-32b", "rtx4090", "server-genoa", "200-800", "50-150", 300),
    "70b-4090-mixed": Cell(LLAMA70, "rtx4090", "server-genoa", "300-700", "64-192", 300),
    "70b-a100-mixed": Cell(LLAMA70, "a100-80", None, "300-700", "64-192", 400),
    "30b-a4000-mixed": Cell("opt-30b", "a4000", None, "200-600", "20-80", 200),
    "13b-v100-mixed": Cell("opt-13b", "v100", None, "200-600", "50-150", 300),
    "a3b-t4-mixed": Cell("qwen3-30b-a3b", "t4", None, "200-600", "50-150", 300),
    "a3b-5090-mixed": Cell("qwen3-30b-a3b", "rtx5090", "p4d.24xlarge", "1500-3000", "50-400", 300),
    "mixtral-l40s": Cell("mixtral-8x7b", "l40s", None, "200-600", "50-150", 300),
    "gemma-a10g": Cell("gemma-2-9b", "a10g", None, "100-900", "50-200", 300),
    "gemma3-3090": Cell("gemma-3-27b", "rtx3090", None, "100-900", "50-200", 200),
    "8b-a10g-int4": Cell(
        LLAMA8,
        "a10g",
        "g5.4xlarge",
        "100-900",
        "50-200",
        400,
        memory=MemoryOptions(quantization="int4"),
    ),
    "70b-4090-int4": Cell(
        LLAMA70,
        "rtx4090",
        None,
        "300-700",
        "64-192",
        200,
        memory=MemoryOptions(quantization="int4"),
    ),
    "8b-a10g-kvint8": Cell(
        LLAMA8,
        "a10g",
        None,
        "1000-4000",
        "50-200",
        200,
        memory=MemoryOptions(kv_cache_dtype="int8"),
    ),
    "8b-a10g-ride": Cell(
        LLAMA8, "a10g", "g5.4xlarge", "500-1500", "50-200", 400, strategy="ride-along"
    ),
    "8b-a10g-rdv": Cell(
        LLAMA8, "a10g", "g5.4xlarge", "500-1500", "50-200", 400, strategy="rendezvous"
    ),
    "8b-a10g-ahead": Cell(
        LLAMA8, "a10g", "g5.4xlarge", "500-1500", "50-200", 400, strategy="rendezvous-ahead"
    ),
    "8b-a10g-asym": Cell(
        LLAMA8, "a10g", "g5.16xlarge", "500-1500", "50-200", 400, strategy="asymmetric"
    ),
    "8b-a10g-sym": Cell(
        LLAMA8, "a10g", "g5.16xlarge", "500-1500", "50-200", 400, strategy="symmetric"
    ),
    "8b-a10g-tpot": Cell(LLAMA8, "a10g", "g5.4xlarge", "100-900", "50-200", 400, tpot_bound="60ms"),
    "70b-4090-tpot": Cell(
        LLAMA70, "rtx4090", "server-genoa", "300-700", "64-192", 200, tpot_bound="5s"
    ),
    "8b-a10g-alone": Cell(LLAMA8, "a10g", alone=True),
    "70b-4090-alone": Cell(LLAMA70, "rtx4090", "server-genoa", alone=True),
    "a3b-t4-alone": Cell("qwen3-30b-a3b", "t4", alone=True),
    "30b-a4000-alone": Cell("opt-30b", "a4000", alone=True, prompt="1000", generate="64"),
    "14b-t4-long-alone": Cell("qwen3-14b", "t4", alone=True, prompt="8000", generate="200"),
    "8b-a10g-rate3": Cell(LLAMA8, "a10g", "g5.4xlarge", "100-900", "50-200", 400, load=0.3),
    "8b-a10g-parts-rate3": Cell(
        LLAMA8,
        "a10g",
        "g5.4xlarge",
        "4000",
        "100",
        200,
        load=0.3,
        strategy="gpu-only",
        steps=StepOptions(max_num_batched_tokens=512),
    ),
    "8b-a10g-rate7": Cell(LLAMA8, "a10g", "g5.4xlarge", "100-900", "50-200", 600, load=0.7),
    "8b-t4-rate5": Cell(LLAMA8, "t4", "g4dn.4xlarge", "100-900", "50-200", 300, load=0.5),
    "70b-4090-rate5": Cell(LLAMA70, "rtx4090", "server-genoa", "300-700", "64-192", 300, load=0.5),
    "a3b-t4-rate5": Cell("qwen3-30b-a3b", "t4", None, "200-600", "50-150", 300, load=0.5),
    "8b-a10g-rdv-rate8": Cell(
        LLAMA8, "a10g", "g5.4xlarge", "500-1500", "50-200", 400, strategy="rendezvous", load=0.8
    ),
    "30b-a4000-rate3": Cell("opt-30b", "a4000", None, "200-600", "20-80", 200, load=0.3),
    "14b-4090-rate5": Cell(
        "qwen3-14b", "rtx4090", None, "lognormal:600,500", "lognormal:200,150", 300, load=0.5
    ),
    "7b-t4-exp-asym-rate6": Cell(
        "llama-2-7b", "t4", None, "exp:500", "exp:100", 200, strategy="asymmetric", load=0.6
    ),
    "7b-t4-exp-gpu-rate6": Cell(
        "llama-2-7b", "t4", None, "exp:500", "exp:100", 300, strategy="gpu-only", load=0.6
    ),
    "7b-a10g-more": Cell(
        "llama-2-7b", "a10g", None, "1", "300-500", 300, strategy="gpu-only", load=1.15
    ),
    "7b-t4-rdv-rate3": Cell(
        "llama-2-7b",
        "t4",
        None,
        workload="osc",
        requests=300,
        strategy="rendezvous",
        steps=StepOptions(max_num_batched_tokens=2048),
        load=0.3,
    ),
    "code-3090-rate4": Cell(
        "qwen3-30b-a3b",
        "rtx3090",
        "server-genoa",
        workload="azure-code",
        requests=400,
        load=0.4,
    ),
    "8b-h100-rate5": Cell(LLAMA8, "h100", None, "exp:500", "exp:150", 1500, load=0.5),
}


def main(names: Sequence[str]) -> None:
    """Print what the cells of these names come to, or all."""
    from tests.support.random_cells import random_cell

    for name in names or CELLS:
        found = compare(random_cell(int(name)) if name.isdecimal() else CELLS[name])
        ratios = {key: round(value, 3) for key, value in found.ratios().items()}
        both = {"predicted": asdict(found.predicted), "simulated": asdict(found.simulated)}
        print(json.dumps({"cell": name, **ratios, "plan": found.plan, **both}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
