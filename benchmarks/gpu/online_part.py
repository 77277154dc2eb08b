"""Jobs that a GPU does not hold at once: what has a target, `auto` beside the GPU alone and that
beside continuous batching, in turns.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.gpu.cases import Case, CaseError, run_cases
from benchmarks.gpu.cells import OnlineCell
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import Asked, JobRate, ModelFolder, drawn_job, run_job
from benchmarks.gpu.kept import ALONE
from benchmarks.gpu.link_meter import LinkMeter
from benchmarks.gpu.metered_job import meter_link
from benchmarks.gpu.neo_peer import MODELS, NEO
from benchmarks.gpu.online_bounds import bound_of, full_pool
from benchmarks.gpu.online_engines import case_of, config_of, engine_of
from benchmarks.gpu.online_pair import Pair, compare
from benchmarks.gpu.opened import graph_rows
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.whole_jobs import (
    PEER,
    neo_module,
    neo_rates,
    peer_running,
    to_its_end,
    whole_requests,
)

from tandem.bench.records import row_of_samples


def measure_online(cell: OnlineCell, scale: Scale, limit: Deadline, found: Findings) -> None:
    """Of one cell, the first policy and the peer, each in turns with the GPU alone.

    Raises:
        TandemError: the GPU alone cannot run it.
    """
    with ModelFolder(cell.shape, scale.dtype) as model, ExitStack() as stack:
        asked = drawn_job(scale, model.spec.vocab_size)
        engine = engine_of(cell, scale, model, ALONE)
        alone_core = stack.enter_context(closing(engine.core))
        stats = alone_core.stats()
        pair = Pair(
            case=case_of(cell, scale),
            alone=lambda: run_job(alone_core, asked, Deadline.after(scale.job_s)),
            bound=bound_of(scale, model.spec, stats, asked),
            scale=scale,
            full=full_pool(scale, stats, asked, found),
        )
        for note in stats.notes:
            found.note(f"{pair.case}: {ALONE}: {note}")

        def graphs(share: Deadline) -> None:
            del share
            found.add(*graph_rows(pair.case, ALONE, engine.parts))

        def beside(name: str, share: Deadline) -> None:
            if name == PEER:
                job = asked[: whole_requests(scale, stats, asked)]
                whole = replace(
                    pair,
                    case=case_of(cell, scale, len(job)),
                    alone=lambda: run_job(alone_core, job, to_its_end(scale)),
                )
                with peer_running(scale, model, stats, job, whole.case, found) as run:
                    compare(whole, name, run, share, found)
            else:
                _beside_alone(pair, name, cell, model, asked, share, found)

        def predictions(share: Deadline) -> None:
            del share  # in virtual time, some seconds
            try:
                from benchmarks.gpu.online_prediction import add_predictions
            except ImportError as error:
                raise CaseError(f"plans need what is not here: {error}") from error
            config = config_of(cell, scale, model, cell.policies[0])
            policies = ALONE, cell.policies[0]
            add_predictions(pair.case, policies, config, model.spec, scale, found)

        def neo(module: Any, share: Deadline) -> None:
            job = asked[: whole_requests(scale, stats, asked)]
            rates = neo_rates(module, cell, scale, model, stats, job, share)
            case = case_of(cell, scale, len(job))
            found.add(row_of_samples(case, NEO, "throughput", rates, "tokens/s"))

        names = [*cell.policies[:1], *[PEER] * cell.peer]
        cases: dict[str, Case] = {"graphs": graphs}
        cases |= {name: partial(beside, name) for name in names}
        cases["predictions"] = predictions
        if cell.peer and cell.shape.name in MODELS:
            module = neo_module(found)
            cases |= {} if module is None else {NEO: partial(neo, module)}
        run_cases(cases, limit, found)


def _beside_alone(
    pair: Pair,
    name: str,
    cell: OnlineCell,
    model: ModelFolder,
    asked: Sequence[Asked],
    limit: Deadline,
    found: Findings,
) -> None:
    """A strategy; then, if there is time, one more job in which copies over the link are timed."""
    meter = LinkMeter()
    engine = engine_of(cell, pair.scale, model, name, (meter.executed,))
    with closing(engine.core):

        def run() -> JobRate:
            return run_job(engine.core, asked, Deadline.after(pair.scale.job_s))

        longest_s = compare(pair, name, run, limit, found)
        found.add(*graph_rows(pair.case, name, engine.parts))
        meter_link(pair.case, name, run, engine, meter, longest_s, limit, found)
