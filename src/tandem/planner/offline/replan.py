"""A batch job's plan made anew while it runs, by rates as its passes were measured."""

from dataclasses import dataclass, replace

from tandem.cost.block_calibration import BlockFactors
from tandem.plan.offline import OfflinePlan
from tandem.plan.weights import streamed_layers
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.policies import OfflinePolicy, find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Lengths, Question
from tandem.spec.hardware import HardwareSpec
from tandem.spec.kv_type import CodeType, parse_kv_type
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.workload import RequestShape, Workload


@dataclass(frozen=True, slots=True)
class Replanned:
    """A plan for the rest of a job, in place of the one by which it runs.

    Attributes:
        question: with the machine as it was measured.
        before, after: blocks of both plans, in words. before_s, after_s: of the rest by each.
    """

    question: Question
    plan: OfflinePlan
    before: str
    after: str
    before_s: float
    after_s: float


def as_measured(machine: HardwareSpec, factors: BlockFactors) -> HardwareSpec:
    """The machine that takes so many times as long for each kind of work.

    What cores and copies share stays as it was told, or is what the cores alone were found to read.
    """
    card, link, host = machine.accelerator, machine.link, machine.host
    disk = host.disk_bytes_per_s
    read = host.memory_bandwidth_bytes_per_s / factors.host
    return replace(
        machine,
        accelerator=replace(
            card,
            memory_bandwidth_bytes_per_s=card.memory_bandwidth_bytes_per_s / factors.stages,
            flops_per_s={kind: rate / factors.stages for kind, rate in card.flops_per_s.items()},
            kernel_overhead_s=card.kernel_overhead_s * factors.stages,
        ),
        link=replace(
            link,
            h2d_bytes_per_s=link.h2d_bytes_per_s / factors.link,
            d2h_bytes_per_s=link.d2h_bytes_per_s / factors.link,
            latency_s=link.latency_s * factors.link,
        ),
        host=replace(
            host,
            memory_bandwidth_bytes_per_s=read,
            flops_per_s=host.flops_per_s / factors.host,
            shared_memory_bandwidth_bytes_per_s=max(host.pool_bytes_per_s, read),
            disk_bytes_per_s=None if disk is None else disk / factors.disk,
        ),
    )


def plan_rest(
    machine: HardwareSpec,
    model: ModelSpec,
    precision: Precision,
    plan: OfflinePlan,
    streamed_rows: int,
    shapes: tuple[RequestShape, ...],
) -> Replanned | None:
    """The best plan for the requests that have not begun, in the memory that the plan was made for;
    None if that is the plan that there is. Types stay as they are, layer by layer.

    Args:
        machine: as it was measured.
        streamed_rows: of a batch's places with KV on the host, as they are shared out now.
        shapes: of those requests, the longest they may come to; at least one.
    """
    lengths = Lengths.of(Workload("the rest of the job", shapes))
    question = Question(
        model=model,
        hardware=machine,
        precision=precision,
        lengths=replace(lengths, longest_tokens=plan.max_model_len),
        device_bytes=plan.accelerator.capacity_bytes,
        host_bytes=plan.host.capacity_bytes,
        max_num_batched_tokens=plan.prefill_tokens,
        block_size=plan.block_size,
        pinned_bytes=plan.most_pinned_bytes,
    )
    search = OfflineSearch(question)
    before = search.option(_candidate(plan, streamed_rows))
    policy = _policy(before.candidate)
    best = search.best(policy, known=[before.candidate])
    if best is None or best.tokens_per_s <= before.tokens_per_s:
        return None
    best = search.simplest(policy, best)
    if best.candidate == before.candidate:
        return None
    layers = model.num_layers
    return Replanned(
        question,
        replace(offline_plan(search, best.candidate, adapts=True), threads=plan.threads),
        before.candidate.describe(layers),
        best.candidate.describe(layers),
        before.prediction.rates.job_s,
        best.prediction.rates.job_s,
    )


def _policy(before: BlockCandidate) -> OfflinePolicy:
    """All means, but the same layers and KV in few bits, and neither layers nor MLPs on the CPU,
    which computes them in another type: so that tokens are the same whatever the plan.
    """
    auto = find_offline_policy("auto")
    return replace(
        auto,
        name="the rest",
        layers=(before.quantized,),
        kv=(before.kv_in_few_bits,),
        computes=False,
        computes_layers=False,
    )


def _candidate(plan: OfflinePlan, streamed_rows: int) -> BlockCandidate:
    streamed = streamed_layers(plan.weights)
    kept = parse_kv_type(plan.kv_dtype, "kv_cache_dtype")
    codes = kept if isinstance(kept, CodeType) else None  # on the host, too
    return BlockCandidate(
        plan.batches,
        len(streamed.layers),
        plan.resident_rows,
        streamed_rows,
        plan.host_rows - streamed_rows,
        plan.recomputed_tokens,
        plan.quantized_layers,
        on_disk=len(streamed.on_disk),
        mlps=bool(streamed.mlps),
        host_kv=codes,
        device_kv=codes,
    )
