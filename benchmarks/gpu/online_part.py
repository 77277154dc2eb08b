"""Jobs that a GPU does not hold at once.

What has a target, `auto` beside the GPU alone and that beside continuous batching,
is compared in turns; other strategies run by themselves, in a part of their own, beside what was
found of the GPU alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from benchmarks.gpu.cases import Case, CaseError, run_cases
from benchmarks.gpu.cells import OnlineCell
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.gain import gain_rows, host_bound
from benchmarks.gpu.jobs import Asked, JobRate, ModelFolder, config_for, drawn_job, run_job
from benchmarks.gpu.kept import ALONE, KeptAlone
from benchmarks.gpu.link_meter import LinkMeter, link_rows
from benchmarks.gpu.neo_peer import MODELS, NEO, NOT_THERE, Neo, NeoSizes, find_library, find_neo
from benchmarks.gpu.opened import Opened, graph_rows, opened, with_kv_of
from benchmarks.gpu.peer import ContinuousBatching
from benchmarks.gpu.scale import CODE_MATHS, Scale
from benchmarks.gpu.stored import stored_profile

from tandem.bench.records import BenchRow, row_of_samples, rows_of_ratio
from tandem.engine.stats import EngineStats, TierStats
from tandem.plan.executed_op import OpListener
from tandem.plan.program import Queue
from tandem.probes.interleave import paired_ratio
from tandem.probes.rounds import median_seconds
from tandem.probes.torch_accelerator import TorchAccelerator
from tandem.profiling.profile import Profile
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import lookup_parameters
from tandem.spec.units import format_size

PEER = "transformers, continuous batching"
_NO_WORSE = 0.98  # than the GPU alone: the target of `auto`
_OF_PEER = 0.95  # the target of the GPU alone
_NEO_STEP_TOKENS = 2048  # as engines'
_WHOLE_WAVES = 3  # of requests that run at once, in a job that is not cut short
_LONGEST_JOBS = 10  # times a job's usual time: longer than any that ends
_HYBRID_ROWS = 2  # times those of the GPU's: as many may keep their KV on the host
_PROBE_BYTES = 256 << 20
_ALONE_HOST_BYTES = 2 << 30  # for embeddings at most: more would only take time to pin

Run = Callable[[], JobRate]


def measure_online(cell: OnlineCell, scale: Scale, limit: Deadline, found: Findings) -> None:
    """Of one cell, the first policy and the peer, each in turns with the GPU alone.

    Raises:
        TandemError: the GPU alone cannot run it.
    """
    with ModelFolder(cell.shape, scale.dtype) as model, ExitStack() as stack:
        asked = drawn_job(scale, model.spec.vocab_size)
        engine = _engine(cell, scale, model, ALONE)
        alone_core = stack.enter_context(closing(engine.core))
        stats = alone_core.stats()
        pair = Pair(
            case=_case(cell, scale),
            alone=lambda: run_job(alone_core, asked, Deadline.after(scale.job_s)),
            bound=_bound(scale, model.spec, stats, asked),
            scale=scale,
            full=_full_pool(scale, stats, asked, found),
        )
        for note in stats.notes:
            found.note(f"{pair.case}: {ALONE}: {note}")

        def graphs(share: Deadline) -> None:
            del share
            found.add(*graph_rows(pair.case, ALONE, engine.parts))

        def beside(name: str, share: Deadline) -> None:
            if name == PEER:
                job = asked[: _whole_requests(scale, stats, asked)]
                whole = replace(
                    pair,
                    case=_case(cell, scale, len(job)),
                    alone=lambda: run_job(alone_core, job, _to_its_end(scale)),
                )
                with _peer(scale, model, stats, job, whole.case, found) as run:
                    _compare(whole, name, run, share, found)
            else:
                _beside_alone(pair, name, cell, model, asked, share, found)

        def predictions(share: Deadline) -> None:
            del share  # in virtual time, some seconds
            try:
                from benchmarks.gpu.online_prediction import add_predictions
            except ImportError as error:
                raise CaseError(f"plans need what is not here: {error}") from error
            config = _config(cell, scale, model, cell.policies[0])
            policies = ALONE, cell.policies[0]
            add_predictions(pair.case, policies, config, model.spec, scale, found)

        def neo(module: Any, share: Deadline) -> None:
            job = asked[: _whole_requests(scale, stats, asked)]
            rates = _neo_rates(module, cell, scale, model, stats, job, share)
            case = _case(cell, scale, len(job))
            found.add(row_of_samples(case, NEO, "throughput", rates, "tokens/s"))

        names = [*cell.policies[:1], *[PEER] * cell.peer]
        cases: dict[str, Case] = {"graphs": graphs}
        cases |= {name: partial(beside, name) for name in names}
        cases["predictions"] = predictions
        if cell.peer and cell.shape.name in MODELS:
            module = _neo(found)
            cases |= {} if module is None else {NEO: partial(neo, module)}
        run_cases(cases, limit, found)


def measure_others(cell: OnlineCell, scale: Scale, limit: Deadline, found: Findings) -> None:
    """Of one cell, the other policies, beside what `measure_online` found of the GPU alone.

    Raises:
        UnfinishedError: it found nothing yet.
        TandemError: an engine cannot run.
    """
    case = _case(cell, scale)
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


def part_name(cell: OnlineCell) -> str:
    """Of what `measure_online` finds."""
    return f"online-{cell.name}"


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
    engine = _engine(cell, scale, model, name, (meter.executed,))
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
            BenchRow(case, who, "throughput, over what was kept", over, "", _NO_WORSE),
            *graph_rows(case, name, engine.parts),
        )
        if alone.gain is not None:
            found.add(*gain_rows(case, who, over, alone.gain))
        longest_s = max(rate.wall_s for rate in rates)
        _meter_link(case, name, run, engine, meter, longest_s, limit, found)


@contextmanager
def _peer(
    scale: Scale,
    model: ModelFolder,
    stats: EngineStats,
    job: Sequence[Asked],
    case: str,
    found: Findings,
) -> Iterator[Run]:
    """What runs the job once, with as much memory for KV as the engine has on the GPU."""
    tier = _device_tier(stats)
    kv_tokens = tier.total_blocks * tier.block_size
    with ContinuousBatching(model.path, scale.device, scale.dtype, kv_tokens, job) as peer:
        found.note(f"{case}: {PEER}: attention by {peer.attention}")
        yield lambda: peer.run(job, _to_its_end(scale))


def _neo(found: Findings) -> Any | None:
    """NEO's module; None, and a note, if it is not there."""
    try:
        module = find_neo()
    except CaseError as error:
        found.note(f"{NEO}, was not run: {error}")
        return None
    if module is None:
        found.note(NOT_THERE)
    return module


def _neo_rates(
    module: Any,
    cell: OnlineCell,
    scale: Scale,
    model: ModelFolder,
    stats: EngineStats,
    job: Sequence[Asked],
    limit: Deadline,
) -> list[float]:
    """Tokens/s of whole jobs, with as much memory for KV as the engines have.

    Raises:
        CaseError: it cannot run here.
    """
    tier, context = _device_tier(stats), max(len(each.prompt) + each.new_tokens for each in job)
    sizes = NeoSizes(
        kv_tokens=tier.total_blocks * tier.block_size,
        host_bytes=scale.online_host_bytes,
        host_tokens=scale.online_host_bytes // (tier.block_bytes // tier.block_size),
        rows=scale.rows * _HYBRID_ROWS,
        longest=context,
        step_tokens=_NEO_STEP_TOKENS,
    )
    with Neo(module, model.path, find_library(cell.shape.name), sizes) as peer:
        peer.run(job, _to_its_end(scale))  # the first is thrown away
        rounds = limit.rounds(scale.rounds)
        return [peer.run(job, _to_its_end(scale)).tokens_per_s for _ in rounds]


def _whole_requests(scale: Scale, stats: EngineStats, asked: Sequence[Asked]) -> int:
    """So few that a job ends in about the time of one that is cut short: the peer's cannot be cut,
    and both must run to their ends, when ever fewer requests are left, or both must not.
    """
    at_once = min(scale.rows, _rows_in(_device_tier(stats), _mean_context(asked)))
    return min(len(asked), _WHOLE_WAVES * max(1, at_once))


def _to_its_end(scale: Scale) -> Deadline:
    """Whatever a job takes; one that does not end is given up."""
    return Deadline.after(_LONGEST_JOBS * scale.job_s)


def _beside_alone(
    pair: "Pair",
    name: str,
    cell: OnlineCell,
    model: ModelFolder,
    asked: Sequence[Asked],
    limit: Deadline,
    found: Findings,
) -> None:
    """A strategy; then, if there is time, one more job in which copies over the link are timed."""
    meter = LinkMeter()
    engine = _engine(cell, pair.scale, model, name, (meter.executed,))
    with closing(engine.core):

        def run() -> JobRate:
            return run_job(engine.core, asked, Deadline.after(pair.scale.job_s))

        longest_s = _compare(pair, name, run, limit, found)
        found.add(*graph_rows(pair.case, name, engine.parts))
        _meter_link(pair.case, name, run, engine, meter, longest_s, limit, found)


def _meter_link(
    case: str,
    name: str,
    run: Run,
    engine: Opened,
    meter: LinkMeter,
    longest_s: float,
    limit: Deadline,
    found: Findings,
) -> None:
    """If there is time for one more job, copies over the link in it."""
    if limit.left_s < longest_s:
        found.note(f"{case}: {name}: no time was left for copies over the link")
        return
    try:
        probed = _both_ways(stored_profile())
    except ConfigError as error:
        found.note(f"copies over the link have no bound: {error}")
        return
    with meter.metering():
        run()
    found.add(*link_rows(case, name, meter.copies(engine.parts), probed))


def _both_ways(profile: Profile) -> dict[Queue, float]:
    """The link's bytes per second, each way while the other copies, too.

    Raises:
        ConfigError: the profile knows of no link.
    """
    card = profile.accelerator
    if card is None:
        raise ConfigError("the profile has no accelerator; remove its record to measure it again")
    return {Queue.H2D: card.h2d.both_bytes_per_s, Queue.D2H: card.d2h.both_bytes_per_s}


def _engine(
    cell: OnlineCell,
    scale: Scale,
    model: ModelFolder,
    strategy: str,
    listeners: Sequence[OpListener] = (),
) -> Opened:
    return opened(_config(cell, scale, model, strategy), listeners)


def _config(cell: OnlineCell, scale: Scale, model: ModelFolder, strategy: str) -> EngineConfig:
    options: dict[str, Any] = {"quantization": cell.quantization, "strategy": strategy}
    host_bytes = min(scale.online_host_bytes, _ALONE_HOST_BYTES)
    if strategy != ALONE:
        rows, host_bytes = scale.rows * _HYBRID_ROWS, scale.online_host_bytes
        options |= {"max_num_seqs": rows, "max_host_seqs": rows}
    options["cpu_memory"] = str(host_bytes)
    config = config_for(scale, model.path, cell.memory_bytes, options)
    return with_kv_of(config, cell.kv_bytes) if cell.kv_bytes else config


def _case(cell: OnlineCell, scale: Scale, requests: int | None = None) -> str:
    weights = str(scale.dtype) if cell.quantization == "none" else cell.quantization
    return (
        f"{cell.shape.name}, {weights}, {_memory(cell)}; "
        f"{requests or scale.requests} requests, {scale.prompt_tokens} tokens in, "
        f"{scale.new_tokens} out"
    )


def _memory(cell: OnlineCell) -> str:
    if cell.kv_bytes:
        return f"{format_size(cell.kv_bytes)} of device memory for KV, all else uncapped"
    return f"{format_size(cell.memory_bytes)} of device memory"


@dataclass(frozen=True, slots=True)
class Pair:
    """What everybody is compared with: the GPU alone.

    Attributes:
        bound: of its rate, in tokens/s.
        full: its pool of KV and who could read more; None where no bound of the gain holds.
    """

    case: str
    alone: Run
    bound: float
    scale: Scale
    full: "FullPool | None"


@dataclass(frozen=True, slots=True)
class FullPool:
    """KV that is the limit of how many requests run on the GPU.

    Attributes:
        rows: that it holds. row_bytes: of each, in the mean. read_bytes_per_s: of KV, by the host.
    """

    rows: int
    row_bytes: float
    read_bytes_per_s: float


def _full_pool(
    scale: Scale, stats: EngineStats, asked: Sequence[Asked], found: Findings
) -> FullPool | None:
    tier = _device_tier(stats)
    context = _mean_context(asked)
    rows = _rows_in(tier, context)
    if rows >= min(scale.rows, len(asked)):
        found.note("no bound of the gain: KV does not limit how many requests run on the GPU")
        return None
    try:
        profile = stored_profile()
    except ConfigError as error:
        found.note(f"no bound of the gain: {error}")
        return None
    row_bytes = context * tier.block_bytes / tier.block_size
    return FullPool(rows, row_bytes, profile.host.memory.read_bytes_per_s)


def _rows_in(tier: TierStats, context: float) -> int:
    """Requests of so many tokens that a tier holds."""
    return tier.total_blocks // math.ceil(context / tier.block_size)


def _mean_context(asked: Sequence[Asked]) -> float:
    """Tokens of a request halfway through its output."""
    return sum(len(each.prompt) + each.new_tokens / 2 for each in asked) / len(asked)


def _compare(pair: Pair, name: str, run: Run, limit: Deadline, found: Findings) -> float:
    """Both in turns; the first round of each is thrown away. Seconds of its longest job."""
    warm = pair.alone(), run()
    ours: list[JobRate] = []
    others: list[JobRate] = []
    for _ in limit.rounds(pair.scale.rounds):
        ours.append(pair.alone())
        others.append(run())
    if not all(rate.complete for rate in (*warm, *ours, *others)):
        found.note(f"{pair.case}: jobs of {ALONE} or of {name} were cut short")
    alone, its = [[rate.tokens_per_s for rate in rates] for rates in (ours, others)]
    if name == PEER:
        paired, what, target = paired_ratio(alone, its), f"{ALONE} over {name}", _OF_PEER
    else:
        paired, what, target = paired_ratio(its, alone), f"{name} over {ALONE}", _NO_WORSE
    case = pair.case
    found.add(
        row_of_samples(
            case, f"{ALONE}, beside {name}", "throughput", alone, "tokens/s", pair.bound
        ),
        row_of_samples(case, name, "throughput", its, "tokens/s"),
        *rows_of_ratio(case, what, "throughput, paired", paired, target),
    )
    if name != PEER and pair.full is not None:
        rate, full = median(alone), pair.full
        most = host_bound(rate, full.rows, full.row_bytes, full.read_bytes_per_s)
        found.add(*gain_rows(case, what, paired.median, most / rate))
    return max(rate.wall_s for rate in others)


def _bound(scale: Scale, spec: ModelSpec, stats: EngineStats, asked: Sequence[Asked]) -> float:
    """Tokens/s if decoding took nothing but reading: each step all weights, and the KV of as many
    requests as the pool holds or may run. Prompts are taken to cost nothing.
    """
    probed = TorchAccelerator(scale.probed(), CODE_MATHS)
    size = min(_PROBE_BYTES, probed.memory_bytes // 8)
    rate = 2 * size / median_seconds({"copy": probed.copying(size)}, 3)["copy"]
    tier = _device_tier(stats)
    context = _mean_context(asked)
    pool_tokens = tier.total_blocks * tier.block_size
    rows = max(1.0, min(scale.rows, len(asked), pool_tokens / context))
    weights = next(
        row.predicted_bytes
        for row in stats.memory
        if row.label == "weights" and row.location == "device"
    )
    weights -= lookup_parameters(spec) * scale.dtype.size_bytes
    kv_bytes = rows * context * tier.block_bytes / tier.block_size
    return rate * rows / (weights + kv_bytes)


def _device_tier(stats: EngineStats) -> TierStats:
    return next(tier for tier in stats.tiers if tier.tier == "device")
