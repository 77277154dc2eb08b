"""`tandem bench preemption`: what becomes of preempted KV, way by way, in virtual time.

Whole models whose weights fit the card, served by the scheduler on the planner's queues. Pools hold
fewer requests than run, so that some are preempted as they grow.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import get_args

from tandem.bench.records import BenchRow
from tandem.memory.margin import margin_bytes
from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import online_plan
from tandem.planner.candidate import candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.option import Option
from tandem.planner.question import Lengths, Question
from tandem.planner.search.search import Search
from tandem.simulator.build import Planned
from tandem.simulator.simulate import recorded
from tandem.spec.config import PreemptionMode
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.precision import Precision
from tandem.spec.workload import Workload, drawn_workload, parse_lengths

SUITE = "preemption"
MODES: tuple[PreemptionMode, ...] = get_args(PreemptionMode)


@dataclass(frozen=True, slots=True)
class PreemptionCase:
    """A load under which requests are preempted.

    Attributes:
        rows, blocks: requests that may run, and blocks of the device's pool.
        link: share of the rate that the card's link has.
        prompt, generate: lengths as `--prompt` takes them. requests: all there at once.
    """

    model: str
    card: str
    rows: int
    blocks: int
    prompt: str
    generate: str
    requests: int
    link: float = 1.0

    def __str__(self) -> str:
        link = "" if self.link == 1.0 else f", link x {self.link:g}"
        asked = f"{self.requests} of {self.prompt} in, {self.generate} out"
        return f"{self.card}{link}, {self.model}, {asked}, {self.rows} rows"

    def workload(self) -> Workload:
        """The requests."""
        prompt = parse_lengths(self.prompt, "prompt")
        return drawn_workload(prompt, parse_lengths(self.generate, "generate"), self.requests)


_PAIR = "2200", "1000", 2
_CROWD = "1500-2500", "500-1500", 16
CASES = (
    # the second gives its KV up as both grow, and comes back alone when the first has ended
    PreemptionCase("llama-2-7b", "rtx4090", 2, 80, *_PAIR),
    PreemptionCase("llama-2-7b", "rtx4090", 2, 80, *_PAIR, link=0.25),
    PreemptionCase("llama-2-7b", "a10g", 2, 80, *_PAIR),
    PreemptionCase("llama-2-7b", "a10g", 2, 80, *_PAIR, link=0.25),
    PreemptionCase("llama-3.1-8b", "a10g", 2, 80, *_PAIR),
    # others decode, and wait
    PreemptionCase("llama-2-7b", "rtx4090", 4, 160, *_CROWD),
    PreemptionCase("llama-2-7b", "rtx4090", 4, 160, *_CROWD, link=0.25),
)


def run_preemption(
    cases: tuple[PreemptionCase, ...], report: Callable[[str], None]
) -> tuple[BenchRow, ...]:
    """Rows of every case and way."""
    return tuple(row for case in cases for row in _measure(case, report))


def _measure(case: PreemptionCase, report: Callable[[str], None]) -> Iterator[BenchRow]:
    workload = case.workload()
    plan = _planned(case, workload)
    means: dict[PreemptionMode, float] = {}
    for mode in MODES:
        report(f"{case}: {mode}")
        record, outcome = recorded(plan, workload, preemption=mode)
        took = [
            record.finish_s[str(number)] - each.arrival_s
            for number, each in enumerate(workload.requests)
        ]
        means[mode] = sum(took) / len(took)
        yield BenchRow(str(case), mode, "time of a request", means[mode], "s")
        yield BenchRow(str(case), mode, "all done", max(record.finish_s.values()), "s")
        yield BenchRow(str(case), mode, "preemptions", float(outcome.preemptions), "")
    for mode, mean_s in means.items():
        behind_s = mean_s - min(means.values())
        yield BenchRow(str(case), mode, "a request's time beyond the best way's", behind_s, "s")


def _planned(case: PreemptionCase, workload: Workload) -> Planned:
    """All on the card but preempted KV."""
    hardware, model = _hardware(case), plannable_spec(case.model)
    card = hardware.accelerator.memory_bytes
    question = Question(
        model=model,
        hardware=hardware,
        precision=Precision.uniform(model.dtype),
        lengths=Lengths.of(workload),
        device_bytes=card - margin_bytes(card),
        host_bytes=hardware.host.memory_bytes,
    )
    search = Search(question)
    candidate = candidate_of("gpu-only", Elsewhere(), case.rows, 0)
    option = Option(candidate, search.predictor.predict(candidate))
    plan = replace(online_plan(search, option), device_blocks=case.blocks, max_num_seqs=case.rows)
    return Planned(question, option, plan)


def _hardware(case: PreemptionCase) -> HardwareSpec:
    found = pair_hardware(case.card, None)
    link = replace(
        found.link,
        h2d_bytes_per_s=case.link * found.link.h2d_bytes_per_s,
        d2h_bytes_per_s=case.link * found.link.d2h_bytes_per_s,
    )
    return replace(found, link=link)
