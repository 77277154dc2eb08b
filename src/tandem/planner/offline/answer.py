"""The offline planner's answer: what to run, what it achieves, and what each policy would do."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from tandem.plan.block_order import ORDERS, BlockOrder, parse_orders
from tandem.plan.offline import OfflinePlan, QuantizedLayers
from tandem.planner.aside import Aside, InTurn
from tandem.planner.exposure import Exposure
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.own_split import OwnSplit, own_split
from tandem.planner.offline.policies import (
    PARK_EGGER,
    OfflinePolicy,
    find_offline_policy,
    policies_within,
)
from tandem.planner.offline.robustness import block_exposure, block_robustness
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.sensitivity import BlockSensitivity, begin_block_sensitivities
from tandem.planner.offline.share_terms import share_terms
from tandem.planner.offline.shortfall import nothing_fits
from tandem.planner.offline.threads import AS_FAST, PlannedThreads, by_threads, planned_threads
from tandem.planner.question import Question
from tandem.planner.robustness import Robustness
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

_NUM_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """What a policy alone would do; None if it cannot run this at all."""

    policy: OfflinePolicy
    option: BlockOption | None


@dataclass(frozen=True, slots=True)
class OfflineAnswer:
    """Everything that there is to say about an offline question.

    What is beside the plan, from the alternatives on, is as empty as its defaults until it is
    known.

    Attributes:
        recomputation: why KV is recomputed as far as it is.
        threads: of the CPU; None: it neither attends nor computes layers, or no number of them was
            measured.
        split: under Park and Egger's policy, what their own search would do; None: under others.
        alternatives: the best of other kinds that were tried, best first.
        exposure: what becomes of the plan as it is where rates turn out otherwise; None: it is not
            known yet.
    """

    question: Question
    policy: OfflinePolicy
    chosen: BlockOption
    plan: OfflinePlan
    recomputation: str
    threads: PlannedThreads | None
    split: OwnSplit | None = None
    alternatives: tuple[BlockOption, ...] = ()
    sensitivities: tuple[BlockSensitivity, ...] = ()
    exposure: Exposure | None = None
    policies: tuple[OfflineResult, ...] = ()
    robustness: Robustness[BlockOption] | None = None


def offline_answer(
    question: Question,
    policy_name: str = "auto",
    compare: bool = False,
    robust: bool = False,
    order: str = "auto",
    aside: Aside | None = None,
    tell: Callable[[OfflineAnswer], None] | None = None,
) -> OfflineAnswer:
    """Plan. Where the CPU was measured by numbers of threads, as many work as make the best plan.

    Args:
        compare: also what each policy alone would do.
        robust: also what becomes of the plan if a number is wrong.
        order: in which batches go through layers: `rows`, `columns`, or `auto`, as is faster.
        aside: who may do some of it meanwhile, which changes nothing of the answer.
        tell: is given the plan as soon as it is known, and what is beside it is not.

    Raises:
        ConfigError: nothing fits, the policy has another order, or the question is none of an
            offline batch.
    """
    orders, aside = parse_orders(order), aside or InTurn()
    policy = _policy(policy_name, orders)
    _check(question, policy)
    search, chosen = _at_its_threads(question, policy, aside)
    if chosen is None:
        raise nothing_fits(search, policy)
    chosen, question = search.simplest(policy, chosen), search.question
    reason = recomputation(search, chosen.candidate)
    split = own_split(question, chosen.candidate) if policy.name == PARK_EGGER else None
    notes = (reason,) if split is None else (reason, str(split))
    plan = offline_plan(search, chosen.candidate, notes, adapts=policy.adapts)
    if plan.pinned_host_blocks:
        plan = replace(plan, notes=(*plan.notes, _pinned_note(plan)))
    threads = planned_threads(question, chosen.candidate, adapts=plan.terms is not None)
    if threads is not None:
        plan = replace(plan, threads=threads.count, notes=(*plan.notes, f"CPU threads: {threads}"))
    plain = OfflineAnswer(question, policy, chosen, plan, reason, threads, split)
    if tell is not None:
        tell(plain)
    gains = begin_block_sensitivities(search, policy, chosen, aside)
    alternatives = tuple(islice(search.alternatives(policy, chosen), _NUM_ALTERNATIVES))
    exposed = block_exposure(search, chosen)
    return replace(
        plain,
        alternatives=alternatives,
        sensitivities=tuple(gain for wait in gains if (gain := wait()) is not None),
        policies=compare_offline(search, orders) if compare else (),
        robustness=block_robustness(search, policy, chosen, alternatives) if robust else None,
        exposure=exposed,
    )


def _at_its_threads(
    question: Question, policy: OfflinePolicy, aside: Aside
) -> tuple[OfflineSearch, BlockOption | None]:
    """The search by the number of the CPU's threads whose plan is fastest, and that. Others than
    the first are searched with less effort, and the one that is chosen of them then with all.
    """
    first, *others = by_threads(question)
    search = found = OfflineSearch(first, aside=aside)
    best = search.best(policy)
    if best is None:
        return search, None
    for other in others:
        another = OfflineSearch(other, like=search)
        option = another.best(policy, known=(best.candidate,))
        if option is not None and option.tokens_per_s * AS_FAST > best.tokens_per_s:
            found, best = another, option
    if found is search:
        return search, best
    search = OfflineSearch(found.question, aside=aside)
    return search, search.best(policy, known=(best.candidate,))


def compare_offline(
    search: OfflineSearch, orders: tuple[BlockOrder, ...] = ORDERS
) -> tuple[OfflineResult, ...]:
    """What every offline policy would choose that has one of these orders."""
    found: list[OfflineResult] = []
    for policy in policies_within(orders):
        best = search.best(policy)
        found.append(OfflineResult(policy, best and search.simplest(policy, best)))
    return tuple(found)


def recomputation(search: OfflineSearch, candidate: BlockCandidate) -> str:
    """How much of streamed KV is recomputed, and why not more (KVPR, section 3)."""
    recomputes = search.candidates.recomputes
    split = recomputes.split(candidate)
    if candidate.recomputed_tokens:
        context = search.question.lengths.context_tokens
        share = candidate.recomputed_tokens / context
        return (
            f"{candidate.recomputed_tokens} tokens, {share:.0%} of a mean context, are recomputed "
            "from activations"
        )
    if not split.tokens:
        return f"no KV is recomputed: {split.reason}"
    if not candidate.streamed_rows:
        return "no KV is recomputed: none is streamed"
    if not recomputes.sees_all:
        return "no KV is recomputed: in layers with a window, most of a prefix is not read anyway"
    return "no KV is recomputed: the link is not what limits"


def offline_plan(
    search: OfflineSearch,
    candidate: BlockCandidate,
    notes: tuple[str, ...] = (),
    *,
    adapts: bool = False,
) -> OfflinePlan:
    """What an engine is to execute.

    Args:
        adapts: the engine may solve shares anew, where both ways have room.
    """
    question, footprint = search.question, search.footprint
    away = footprint.prompts_on_host(candidate)
    order = search.times.order(candidate)
    adapts = adapts and _has_room_for_both(search, candidate, away)
    device = footprint.device(candidate, prompts_on_host=away, adapts=adapts)
    host = footprint.host(candidate, prompts_on_host=away, adapts=adapts)
    more_there = footprint.spare_device_blocks(candidate, question.device_bytes - device.total)
    more_here = footprint.spare_host_blocks(candidate, question.host_bytes - host.total)
    device = device.with_kv(more_there * footprint.device_page(candidate).bytes_per_block)
    pinned = _pinned(search, candidate, away, more_here, adapts=adapts)
    block_bytes = footprint.host_page(candidate).bytes_per_block
    counted = footprint.pinned_blocks(candidate, candidate.streamed_rows)
    host = host.with_kv(more_here * block_bytes, pinned=(pinned.blocks - counted) * block_bytes)
    terms = share_terms(search.times, candidate)
    return OfflinePlan(
        weights=candidate.placement(question.model.num_layers),
        batches=candidate.batches,
        resident_rows=candidate.resident_rows,
        streamed_rows=candidate.streamed_rows,
        cpu_rows=candidate.cpu_rows,
        kv_dtype=str(footprint.device_page(candidate).dtype),
        host_kv_dtype=str(footprint.host_page(candidate).dtype),
        block_size=question.block_size,
        device_blocks=footprint.device_blocks(candidate) + more_there,
        host_blocks=footprint.host_blocks(candidate) + more_here,
        slot_blocks=footprint.slot_blocks(candidate),
        max_model_len=question.lengths.longest_tokens,
        prefill_tokens=question.max_num_batched_tokens,
        accelerator=device.of(question.device_bytes),
        host=host.of(question.host_bytes),
        recomputed_tokens=candidate.recomputed_tokens,
        quantized_layers=candidate.quantized,
        quantization=_quantization(question, candidate.quantized),
        prompts_on_host=away,
        layers_overlap=order.layers_overlap,
        weights_in_parts=order.weights_in_parts,
        terms=replace(terms, most_pinned_rows=pinned.rows) if adapts else None,
        fixed_terms=None if adapts else terms,
        pinned_blocks=pinned.blocks,
        most_pinned_bytes=question.pinned_bytes,
        cpu_mlps=candidate.cpu_mlps(question.model.num_layers),
        cpu_layers=candidate.cpu_layers(question.model.num_layers),
        cpu_columns=candidate.columns,
        cpu_attention_maps=candidate.attention_maps,
        notes=notes,
    )


def _pinned_note(plan: OfflinePlan) -> str:
    """For whose KV memory is pinned."""
    named = f"{plan.streamed_rows} streamed"
    if plan.terms is not None and plan.terms.most_pinned_rows is not None:
        more = plan.terms.most_pinned_rows - plan.streamed_rows
        named += f" and {more} more that may come to be streamed,"
    return (
        f"pinned host memory: {format_size(plan.host.pinned_bytes)}, its KV for {named} of a "
        f"batch's {plan.host_rows} sequences with KV there"
    )


class _Pinned(NamedTuple):
    """Of a batch, sequences whose KV on the host may be streamed; blocks for those of all."""

    rows: int
    blocks: int


def _pinned(
    search: OfflineSearch, candidate: BlockCandidate, away: bool, more: int, *, adapts: bool
) -> _Pinned:
    """Args:
    more: blocks on the host that nobody counts on, of which the pinned part has its share.
    """
    footprint = search.footprint
    rows = candidate.streamed_rows
    if adapts:
        rows = footprint.pinned_rows(candidate, prompts_on_host=away)
    blocks, of = footprint.pinned_blocks(candidate, rows), footprint.host_blocks(candidate)
    bounded = search.question.pinned_bytes is not None
    return _Pinned(rows, blocks + (0 if bounded or not of else more * blocks // of))


def _has_room_for_both(search: OfflineSearch, candidate: BlockCandidate, away: bool) -> bool:
    """Whether each sequence with its KV on the host could be streamed, or attended on the CPU."""
    if candidate.recomputed_tokens or not candidate.host_rows:
        return False
    question, footprint = search.question, search.footprint
    device = footprint.device(candidate, prompts_on_host=away, adapts=True).total
    host = footprint.host(candidate, prompts_on_host=away, adapts=True).total
    return device <= question.device_bytes and host <= question.host_bytes


def _quantization(question: Question, layers: QuantizedLayers) -> str:
    formats = {str(format) for format in question.precision.quantized.values()}
    return "none" if layers == "none" else " and ".join(sorted(formats))


def _policy(name: str, orders: tuple[BlockOrder, ...]) -> OfflinePolicy:
    policy = find_offline_policy(name)
    within = policy.within(orders)
    if within is None:
        raise ConfigError(
            f"batches of policy '{name}' go by {policy.orders[0]} alone; leave --order "
            f"{orders[0]} out, or choose another policy",
            param="order",
        )
    return within


def _check(question: Question, policy: OfflinePolicy) -> None:
    if policy.orders == ("columns",) and question.lengths.requests == 1:
        raise ConfigError(
            "one request makes no two batches, which --order columns brings weights for at once; "
            "leave it out",
            param="order",
        )
    if question.host_only:
        raise ConfigError(
            "--offline plans what an accelerator and its host do together; without one, leave it "
            "out",
            param="offline",
        )
    if question.objective == "latency" or question.tpot_bound_s is not None:
        raise ConfigError(
            "--offline is for jobs where nobody waits for a single answer; leave --objective "
            "latency and --tpot-bound out",
            param="offline",
        )
