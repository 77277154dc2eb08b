"""`tandem bench simulator`: simulated steps per second of processor time, at 64 running requests.

Every load is run in turns with and without steps being skipped, and all runs of it must agree in
every moment and every token.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tandem.bench.records import BenchRow, row_of_samples
from tandem.memory.margin import margin_bytes
from tandem.models.catalogue import plannable_spec
from tandem.plan.stepped import stepped
from tandem.planner.answer import online_plan
from tandem.planner.candidate import Strategy, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.option import Option
from tandem.planner.question import Lengths, Question
from tandem.planner.search.search import Search
from tandem.simulator.build import Planned
from tandem.simulator.outcome import Outcome
from tandem.simulator.record import Record
from tandem.simulator.simulate import recorded
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.precision import Precision
from tandem.spec.workload import Workload, drawn_workload, parse_lengths

SUITE = "simulator"
BOUND_PER_S = 2000
_RUNNING = 64
_MODEL, _CARD, _HOST = "llama-3.1-8b", "a100-40", "p4d.24xlarge"
"""Of which all weights and 64 requests of these lengths fit the card."""
_PROMPT = "100-300"
Simulated = Strategy | Literal["auto", "auto, hosted", "neo", "apex"]
_HOSTED: dict[Simulated, int] = {
    "gpu-only": 0,
    "auto": 0,
    "auto, hosted": 16,
    "ride-along": 16,
    "rendezvous": 16,
    "rendezvous-ahead": 16,
    "asymmetric": 16,
    "symmetric": _RUNNING,
    "neo": 16,
    "apex": 16,
}
"""Of the 64 requests, those on the host."""
_WITH_HOSTED = ", hosted"
_SKIPPING, _EVERY = "steps skipped", "every step"


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """Requests that are all there at once, or come at a rate.

    Attributes:
        generate: tokens out, as `--generate` takes them.
    """

    name: str
    generate: str
    requests: int
    rate_per_s: float | None = None

    def workload(self) -> Workload:
        """The requests."""
        prompt, generate = (
            parse_lengths(_PROMPT, "prompt"),
            parse_lengths(self.generate, "generate"),
        )
        return drawn_workload(prompt, generate, self.requests, self.rate_per_s)


@dataclass(frozen=True, slots=True)
class SimulatorBench:
    """How much to run.

    Attributes:
        rounds: of each load, with and without skipping in turns.
    """

    loads: tuple[SimulatedLoad, ...]
    strategies: tuple[Simulated, ...] = tuple(_HOSTED)
    rounds: int = 3


FULL = SimulatorBench(
    (
        SimulatedLoad("decode-heavy, 300 to 700 tokens out, 192 at once", "300-700", 192),
        SimulatedLoad("mixed, 100 to 300 out, 256 at once", "100-300", 256),
        SimulatedLoad("coming, 20 to 100 out, 30 per second", "20-100", 300, 30.0),
        SimulatedLoad("saturated, 20 to 100 out, 600 at once", "20-100", 600),
    )
)
QUICK = SimulatorBench(
    (SimulatedLoad("saturated, 20 to 100 out, 130 at once", "20-100", 130),), rounds=2
)


def run_simulator(bench: SimulatorBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Rows of every load and strategy.

    Raises:
        RuntimeError: two runs of a load differ.
    """
    return tuple(
        row
        for load in bench.loads
        for strategy in bench.strategies
        for row in _measure(load, strategy, bench.rounds, report)
    )


def digest(record: Record, outcome: Outcome) -> str:
    """Of every moment and every token of a run, and of all that it amounts to but how many steps
    were skipped.
    """
    same = replace(outcome, skipped_steps=0)
    moments = (record.first_s, record.finish_s, record.tokens)
    found = [sorted(each.items()) for each in moments], record.progress, same
    return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()


def planned(load: SimulatedLoad, strategy: Simulated) -> Planned:
    """64 requests, on the card with all weights; of strategies that have some, 16 or all on the
    host, in cohorts with a pass beside every layer where they may have passes.
    """
    hardware, model = pair_hardware(_CARD, _HOST), plannable_spec(_MODEL)
    card = hardware.accelerator.memory_bytes
    question = Question(
        model=model,
        hardware=hardware,
        precision=Precision.uniform(model.dtype),
        lengths=Lengths.of(load.workload()),
        device_bytes=card - margin_bytes(card),
        host_bytes=hardware.host.memory_bytes,
    )
    search = Search(question)
    hosted, way = _HOSTED[strategy], _way(strategy)
    passes = model.num_layers if way in ("symmetric", "asymmetric") else 0
    candidate = candidate_of(way, Elsewhere(), _RUNNING - hosted, hosted, passes)
    option = Option(candidate, search.predictor.predict(candidate))
    plan = online_plan(search, option)
    name = strategy.removesuffix(_WITH_HOSTED)
    return Planned(question, option, plan if way == name else stepped(plan, name))


def _way(strategy: Simulated) -> Strategy:
    """Whose plan it is: a strategy's own, or for one that chooses steps any that fits."""
    if strategy == "auto":
        return "gpu-only"
    if strategy == "neo" or strategy == "apex" or strategy == "auto, hosted":
        return "ride-along"
    return strategy


def _measure(
    load: SimulatedLoad, strategy: Simulated, rounds: int, report: Callable[[str], None]
) -> Iterator[BenchRow]:
    report(f"{load.name}: {strategy}")
    plan, workload = planned(load, strategy), load.workload()
    rates: dict[str, list[float]] = {_SKIPPING: [], _EVERY: []}
    shares, digests = {0.0}, set[str]()
    for _ in range(rounds):
        for variant, found in rates.items():
            begin_s = time.process_time()
            record, outcome = recorded(plan, workload, skip=variant == _SKIPPING)
            found.append(outcome.steps / (time.process_time() - begin_s))
            digests.add(digest(record, outcome))
            shares.add(outcome.skipped_steps / outcome.steps)
    if len(digests) > 1:
        raise RuntimeError(f"{load.name}, {strategy}: runs differ: {', '.join(sorted(digests))}")
    for variant, found in rates.items():
        name = f"{strategy}, {variant}"
        bound = BOUND_PER_S if variant == _SKIPPING else None
        yield row_of_samples(load.name, name, "steps per second", found, "1/s CPU", bound)
    name = f"{strategy}, outcome {digests.pop()}"
    yield BenchRow(load.name, name, "share of steps skipped", max(shares), "share", 1.0)
