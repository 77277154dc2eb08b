"""Jobs of others, who cannot be cut short: as much memory for KV, and both to their ends."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.cells import OnlineCell
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import Asked, JobRate, ModelFolder
from benchmarks.gpu.neo_peer import NEO, NOT_THERE, Neo, NeoSizes, find_library, find_neo
from benchmarks.gpu.online_bounds import device_tier, mean_context, rows_in
from benchmarks.gpu.online_engines import HYBRID_ROWS
from benchmarks.gpu.peer import ContinuousBatching
from benchmarks.gpu.scale import Scale

from tandem.engine.stats import EngineStats

PEER = "transformers, continuous batching"
_STEP_TOKENS = 2048  # as engines'
_WHOLE_WAVES = 3  # of requests that run at once
_LONGEST_JOBS = 10  # times a job's usual time: longer than any that ends


@contextmanager
def peer_running(
    scale: Scale,
    model: ModelFolder,
    stats: EngineStats,
    job: Sequence[Asked],
    case: str,
    found: Findings,
) -> Iterator[Callable[[], JobRate]]:
    """What runs the job once, with as much memory for KV as the engine has on the GPU."""
    tier = device_tier(stats)
    kv_tokens = tier.total_blocks * tier.block_size
    sizes = kv_tokens, _STEP_TOKENS
    with ContinuousBatching(model.path, scale.device, scale.dtype, *sizes, job) as peer:
        found.note(f"{case}: {PEER}: attention by {peer.attention}")
        yield lambda: peer.run(job, to_its_end(scale))


def neo_module(found: Findings) -> Any | None:
    """NEO's module; None, and a note, if it is not there."""
    try:
        module = find_neo()
    except CaseError as error:
        found.note(f"{NEO}, was not run: {error}")
        return None
    if module is None:
        found.note(NOT_THERE)
    return module


def neo_rates(
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
    tier, context = device_tier(stats), max(len(each.prompt) + each.new_tokens for each in job)
    sizes = NeoSizes(
        kv_tokens=tier.total_blocks * tier.block_size,
        host_bytes=scale.online_host_bytes,
        host_tokens=scale.online_host_bytes // (tier.block_bytes // tier.block_size),
        rows=scale.rows * HYBRID_ROWS,
        longest=context,
        step_tokens=_STEP_TOKENS,
    )
    with Neo(module, model.path, find_library(cell.shape.name), sizes) as peer:
        peer.run(job, to_its_end(scale))  # the first is thrown away
        rounds = limit.rounds(scale.rounds)
        return [peer.run(job, to_its_end(scale)).tokens_per_s for _ in rounds]


def whole_requests(scale: Scale, stats: EngineStats, asked: Sequence[Asked]) -> int:
    """So few that a job ends in about the time of one that is cut short: the peer's cannot be cut,
    and both must run to their ends, when ever fewer requests are left, or both must not.
    """
    at_once = min(scale.rows, rows_in(device_tier(stats), mean_context(asked)))
    return min(len(asked), _WHOLE_WAVES * max(1, at_once))


def to_its_end(scale: Scale) -> Deadline:
    """Whatever a job takes; one that does not end is given up."""
    return Deadline.after(_LONGEST_JOBS * scale.job_s)
