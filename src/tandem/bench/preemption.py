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
from tandem.spec.workload import RequestShape, Workload, drawn_workload, parse_lengths

SUITE = "preemption"
MODES: tuple[PreemptionMode, ...] = get_args(PreemptionMode)
_PAIRS, _APART_S = 4, 120.0


@dataclass(frozen=True, slots=True)
class PreemptionCase:
    """A load under which requests are preempted.

    Attributes:
        rows, blocks: requests that may run, and blocks of the device's pool.
        link: share of the rate that the card's link has.
        prompt, generate: lengths as `--prompt` takes them. requests: all there at once; 0: in
            pairs, far apart, so that the second of each comes back alone.
    """

    model: str
    card: str
    rows: int
    blocks: int
    prompt: str
    generate: str
    requests: int = 0
    link: float = 1.0

    def __str__(self) -> str:
        come = f"{self.requests} at once" if self.requests else "two at a time"
        link = "" if self.link == 1.0 else f", link x {self.link:g}"
        return f"{self.card}{link}, {self.model}, {self.prompt} in, {self.generate} out, {come}"

    def workload(self) -> Workload:
        """The requests."""
        prompt, generate = parse_lengths(self.prompt, "prompt"), parse_lengths(self.generate, "out")
        if self.requests:
            return drawn_workload(prompt, generate, self.requests)
        shapes = drawn_workload(prompt, generate, 2 * _PAIRS).requests
        coming = (
            RequestShape(each.prompt_tokens, each.generated_tokens, _APART_S * (number // 2))
            for number, each in enumerate(shapes)
        )
        return Workload("pairs", tuple(coming))


CASES = (
    PreemptionCase("llama-2-7b", "rtx4090", 2, 80, "2200", "1000"),
    PreemptionCase("llama-2-7b", "rtx4090", 2, 80, "2200", "1000", link=0.25),
    PreemptionCase("llama-2-7b", "a10g", 2, 80, "2200", "1000"),
    PreemptionCase("llama-2-7b", "a10g", 2, 80, "2200", "1000", link=0.25),
    PreemptionCase("llama-3.1-8b", "a10g", 2, 80, "2200", "1000"),
    PreemptionCase("llama-2-7b", "rtx4090", 4, 160, "1500-2500", "500-1500", 32),
    PreemptionCase("llama-2-7b", "a10g", 16, 160, "100-300", "500-2500", 64),
    PreemptionCase("llama-3.1-8b", "a10g", 32, 512, "100-300", "500-2500", 96),
)


def run_preemption(
    cases: tuple[PreemptionCase, ...], report: Callable[[str], None]
) -> tuple[BenchRow, ...]:
    """Rows of every case and way."""
    return tuple(row for case in cases for row in _measure(case, report))


def _measure(case: PreemptionCase, report: Callable[[str], None]) -> Iterator[BenchRow]:
    workload = case.workload()
    plan = _planned(case, workload)
    for mode in MODES:
        report(f"{case}: {mode}")
        record, outcome = recorded(plan, workload, preemption=mode)
        took = [
            record.finish_s[str(number)] - each.arrival_s
            for number, each in enumerate(workload.requests)
        ]
        yield BenchRow(str(case), mode, "time of a request", sum(took) / len(took), "s")
        yield BenchRow(str(case), mode, "all done", max(record.finish_s.values()), "s")
        yield BenchRow(str(case), mode, "preemptions", float(outcome.preemptions), "")


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
