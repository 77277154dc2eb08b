"""Other strategies of an online cell, each by itself, beside what was found of the GPU alone."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from statistics import median

from benchmarks.gpu.cases import run_cases
from benchmarks.gpu.cells import OnlineCell
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.gain import gain_rows
from benchmarks.gpu.jobs import Asked, JobRate, ModelFolder, drawn_job, run_job
from benchmarks.gpu.kept import ALONE, KeptAlone
from benchmarks.gpu.link_meter import LinkMeter
from benchmarks.gpu.metered_job import meter_link
from benchmarks.gpu.online_engines import case_of, engine_of, part_name
from benchmarks.gpu.online_pair import NO_WORSE
from benchmarks.gpu.opened import graph_rows
from benchmarks.gpu.scale import Scale

from tandem.bench.records import BenchRow, row_of_samples


def measure_others(cell: OnlineCell, scale: Scale, limit: Deadline, found: Findings) -> None:
    """Of one cell, the other policies, beside what `measure_online` found of the GPU alone.

    Raises:
        UnfinishedError: it found nothing yet.
        TandemError: an engine cannot run.
    """
    case = case_of(cell, scale)
    alone = KeptAlone.of(found.path.with_name(f"{part_name(cell)}.json"), case)
    with ModelFolder(cell.shape, scale.dtype) as model:
        asked = drawn_job(scale, model.spec.vocab_size)
        run_cases(
            {
                name: partial(_beside_kept, alone, case, name, cell, scale, model, asked, found)
                for name in cell.policies[1:]
            },
            limit,
            found,
        )


def _beside_kept(
    alone: KeptAlone,
    case: str,
    name: str,
    cell: OnlineCell,
    scale: Scale,
    model: ModelFolder,
    asked: Sequence[Asked],
    found: Findings,
    limit: Deadline,
) -> None:
    meter = LinkMeter()
    engine = engine_of(cell, scale, model, name, (meter.executed,))
    with closing(engine.core):

        def run() -> JobRate:
            return run_job(engine.core, asked, Deadline.after(scale.job_s))

        rates = [run()]  # the first is thrown away
        rates += [run() for _ in limit.rounds(scale.rounds)]
        if not all(rate.complete for rate in rates):
            found.note(f"{case}: jobs of {name} were cut short after {scale.job_s:g} s")
        its = [rate.tokens_per_s for rate in rates[1:]]
        over = median(its) / alone.per_s
        who = f"{name} over {ALONE}"
        found.add(
            row_of_samples(case, name, "throughput", its, "tokens/s"),
            BenchRow(case, who, "throughput, over what was kept", over, "", NO_WORSE),
            *graph_rows(case, name, engine.parts),
        )
        if alone.gain is not None:
            found.add(*gain_rows(case, who, over, alone.gain))
        longest_s = max(rate.wall_s for rate in rates)
        meter_link(case, name, run, engine, meter, longest_s, limit, found)
