"""The planner's answer: what to run, what it achieves, and what was rejected."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.memory.host_default import default_host_blocks
from tandem.plan.online import OnlinePlan
from tandem.planner.aside import Aside, InTurn
from tandem.planner.candidate import COHORT_STRATEGIES, Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.engine_plan import engine_plan
from tandem.planner.footprint import TierUse
from tandem.planner.in_step import InStep
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES, Policy, find_policy
from tandem.planner.question import Question
from tandem.planner.rates import Rates
from tandem.planner.relaxation.bounded import Ceiling
from tandem.planner.search.families import unlike_first
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import with_steps_that_fit
from tandem.planner.while_young import more_while_young
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.units import duration_to_allow, format_duration, format_size

if TYPE_CHECKING:  # of what is looked for when the plan has been told, or of few questions
    from tandem.planner.arrivals import Arrivals
    from tandem.planner.exposure import Exposure
    from tandem.planner.robustness import Robustness
    from tandem.planner.sensitivity import Sensitivity

_NUM_ALTERNATIVES = 3
_OF_EXPERTS = ("n-cpu-moe",)
_ALIKE = 0.01
"""Relative difference of predictions that are as good as equal."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What a policy alone would do; None if it cannot run this at all."""

    policy: Policy
    option: Option | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that there is to say about a question.

    What is beside the plan, from the ceiling on, is as empty as its defaults until it is known.

    Attributes:
        spare_bytes: accelerator memory left if all weights and one request's KV lay there, beside
            the workspace of the question's steps, which may be smaller under another policy;
            negative if they do not fit.
        device, host: use of each memory by the chosen option.
        cpu_memory_bytes: of the host's memory, what an engine must be told to fill that is started
            by flags; None: it comes to as much KV there by itself.
        arrivals: what requests see that come over time; None if all are there at once.
        seen: rates as requests see them: those that come over time, or that are in step as all of a
            job are.
        request_s: of a mean request, in the slower lane. job_s: of all of them; where they are all
            there at once, in step as they then are, which plans are ranked without.
        main_request_s: of a mean request that every sweep serves; None if all are in cohorts.
        cohort_request_s: of one in a cohort; None if none is, at the rate at which they come.
        extrapolated: predictions outside what was measured, one line each.
        ceiling: what no plan under the policy exceeds in steps of that size; None where times are
            measured.
        alternatives: the best of other kinds, best first.
        exposure: what becomes of the plan as it is where rates turn out otherwise; None where all
            were measured.
    """

    question: Question
    policy: Policy
    chosen: Option
    plan: OnlinePlan
    spare_bytes: int
    device: TierUse
    host: TierUse
    cpu_memory_bytes: int | None
    arrivals: "Arrivals | None"
    seen: Rates
    request_s: float
    job_s: float
    main_request_s: float | None
    cohort_request_s: float | None
    extrapolated: tuple[str, ...] = ()
    ceiling: Ceiling | None = None
    alternatives: tuple[Option, ...] = ()
    sensitivities: "tuple[Sensitivity, ...]" = ()
    policies: tuple[PolicyResult, ...] = ()
    robustness: "Robustness[Option] | None" = None
    exposure: "Exposure | None" = None

    @property
    def job_tokens_per_s(self) -> float:
        """Output tokens of all requests, over the time of the job."""
        lengths = self.question.lengths
        return lengths.requests * lengths.generated_tokens / self.job_s


def answer(
    question: Question,
    policy_name: str = "auto",
    compare: bool = False,
    robust: bool = False,
    aside: Aside | None = None,
    tell: Callable[[Answer], None] | None = None,
) -> Answer:
    """Plan.

    Args:
        compare: also what each policy alone would do.
        robust: also what becomes of the plan if a number is wrong.
        aside: who may do some of it meanwhile, which changes nothing of the answer.
        tell: is given the plan as soon as it is known, and what is beside it is not; once more
            where a better one is found there, or under a policy that allows less, which takes its
            place.

    Raises:
        ConfigError: nothing fits, or nothing keeps the bound on time per token; says by how much.
    """
    policy, aside = _policy(question, policy_name, compare), aside or InTurn()
    if robust:
        _refuse_if_measured(question)
    question = with_steps_that_fit(question, policy)
    search = Search(question, aside=aside)
    in_step = InStep(search)
    likely = search.choice(policy)
    if likely is not None and likely.candidate.step_tokens:  # which is mostly the size chosen
        search.begin_ceiling(policy, likely.candidate.step_tokens)
    plain_of = _Plain(search, policy, tell)
    chosen, policies = choose(search, policy, in_step, plain_of.told), ()
    left = set[Candidate]()
    while True:
        plain = plain_of.told(chosen)
        beside = _beside(search, policy, in_step, chosen, aside, robust=robust)
        if compare and not policies:
            # after sensitivities, which would start from what is found here as well
            policies = compare_policies(search, in_step)
        better = in_step.better(chosen, policy, _found(beside, policies))
        if better is None or better.candidate in left:
            break
        left.add(chosen.candidate)
        chosen = better
    return replace(
        plain,
        alternatives=beside.alternatives,
        exposure=beside.exposure,
        ceiling=search.ceiling(policy, chosen.candidate.step_tokens),
        sensitivities=_with_base(beside.sensitivities, policy, in_step),
        policies=tuple(_with_plan(result, policy, chosen, question) for result in policies),
        robustness=beside.robustness,
    )


def _refuse_if_measured(question: Question) -> None:
    from tandem.planner.wrong_rates import numbers

    if not numbers(question):
        raise ConfigError(
            "--robustness moves rates that are assumed, and all that this plan rests on were "
            "measured; leave it out",
            param="robustness",
        )


class _Plain:
    """Plans without what is beside them, each told when it takes another one's place.

    Args:
        tell: as of `answer`.
    """

    def __init__(
        self, search: Search, policy: Policy, tell: Callable[[Answer], None] | None
    ) -> None:
        self._search, self._policy, self._tell = search, policy, tell
        self._last: Answer | None = None

    def told(self, chosen: Option) -> Answer:
        """Of a plan that is chosen, unless it is the last one."""
        if self._last is None or self._last.chosen != chosen:
            self._last = _of_plan(self._search, self._policy, chosen)
            if self._tell is not None:
                self._tell(self._last)
        return self._last


def _of_plan(search: Search, policy: Policy, chosen: Option) -> Answer:
    """Without what is beside the plan."""
    more = _more_places(search, chosen)
    device, host = search.footprint.uses(chosen.candidate, more)
    question = search.question
    arrivals = _arrivals(search, chosen)
    seen = chosen.seen if arrivals is None else arrivals.rates
    in_every_sweep = chosen.candidate.in_every_sweep()
    plan = engine_plan(question, search.footprint, chosen, more)
    return Answer(
        question=question,
        policy=policy,
        chosen=chosen,
        plan=plan,
        spare_bytes=_spare_bytes(search),
        device=device,
        host=host,
        cpu_memory_bytes=_cpu_memory_bytes(search, plan, device if question.host_only else host),
        arrivals=arrivals,
        seen=seen,
        request_s=search.predictor.request_s(seen),
        job_s=_job_s(search, chosen, arrivals),
        main_request_s=search.predictor.main_request_s(seen) if in_every_sweep else None,
        cohort_request_s=None if seen.slow_tpot_s is None else search.predictor.request_s(seen),
        extrapolated=search.predictor.extrapolated(chosen.candidate),
    )


@dataclass(frozen=True, slots=True)
class _Beside:
    """What is told beside a chosen plan; attributes as of `Answer`."""

    alternatives: tuple[Option, ...]
    sensitivities: "tuple[Sensitivity, ...]"
    exposure: "Exposure | None"
    robustness: "Robustness[Option] | None"


def _beside(
    search: Search, policy: Policy, in_step: InStep, chosen: Option, aside: Aside, *, robust: bool
) -> _Beside:
    from tandem.planner.robustness import robustness
    from tandem.planner.sensitivity import begin_sensitivities
    from tandem.planner.wrong_rates import numbers

    search.begin_ceiling(policy, chosen.candidate.step_tokens)
    alternatives = _shown(chosen, in_step.alternatives(policy, chosen))
    gains = begin_sensitivities(search, policy, in_step, chosen, aside)
    exposed = _exposure(search, chosen) if numbers(search.question) else None
    return _Beside(
        alternatives,
        tuple(gain for wait in gains if (gain := wait()) is not None),
        exposed,
        robustness(search, policy, chosen, alternatives) if robust else None,
    )


def _found(beside: _Beside, policies: Iterable[PolicyResult]) -> Iterator[Candidate]:
    """Plans that were found beside the chosen one, for this machine or for others."""
    yield from (option.candidate for option in beside.alternatives)
    yield from (entry.option.candidate for entry in beside.sensitivities)
    yield from (result.option.candidate for result in policies if result.option is not None)
    cases = () if beside.robustness is None else beside.robustness.cases
    yield from (case.best.candidate for case in cases if case.best is not None)


def _with_base(
    found: "Iterable[Sensitivity]", policy: Policy, in_step: InStep
) -> "tuple[Sensitivity, ...]":
    """Against the fastest option that is known for this machine by now, of which those of larger
    ones may be where they fit.
    """
    entries = tuple(found)
    base = in_step.fastest(policy, (entry.option.candidate for entry in entries))
    return entries if base is None else tuple(replace(entry, base=base) for entry in entries)


def _exposure(search: Search, chosen: Option) -> "Exposure":
    from tandem.planner.exposure import exposure

    def speed(other: Question) -> tuple[float, bool]:
        there = Search(other, like=search)
        option = Option(chosen.candidate, there.predictor.predict(chosen.candidate))
        in_time = other.allows(option.prediction.rates.worst_tpot_s)
        return InStep(there).closely(option).tokens_per_s, in_time

    return exposure(search.question, chosen.tokens_per_s, speed)


def _shown(chosen: Option, options: Iterable[Option]) -> tuple[Option, ...]:
    """As few as people read: of different families, as far as there are any; in their order."""
    others = list(distinct(chosen, options))
    shown = unlike_first(chosen.candidate, others)[:_NUM_ALTERNATIVES]
    return tuple(option for option in others if option in shown)


def distinct(chosen: Option, options: Iterable[Option]) -> Iterator[Option]:
    """Without those that do nearly the same as one before them, or as the chosen one: requests in
    the same places, as fast, and only some other layers streamed, or on the CPU.
    """
    kept = [chosen]
    for option in options:
        if not any(_alike(option, other) for other in kept):
            kept.append(option)
            yield option


def _alike(option: Option, other: Option) -> bool:
    one, another = option.candidate, other.candidate
    ways = [(found.on_cpu > 0, found.how) for found in (one, another)]
    same = one.with_elsewhere(another.elsewhere) == another and ways[0] == ways[1]
    return same and abs(option.tokens_per_s / other.tokens_per_s - 1) < _ALIKE


def _policy(question: Question, name: str, compare: bool) -> Policy:
    """On the host alone, there is one."""
    policy = find_policy(name)
    if not question.host_only:
        return policy.for_weights(question.precision)
    if compare or name not in ("auto", "gpu-only"):
        raise ConfigError(
            "policies say what an accelerator and its host do; without one there is nothing to "
            "choose: leave --policy and --compare-policies out",
            param="policy",
        )
    return POLICIES["gpu-only"]


def choose(
    search: Search,
    policy: Policy,
    in_step: InStep | None = None,
    tell: Callable[[Option], object] | None = None,
) -> Option:
    """The plan's option: the best, or the simplest whose job takes about as long.

    Args:
        in_step: plans of this search that have been lived through.
        tell: is given what is most likely chosen, as soon as it is known.

    Raises:
        ConfigError: nothing fits, or nothing keeps the bound on time per token; says by how much.
    """
    chosen = (in_step or InStep(search)).choice(policy, tell)
    if chosen is None:
        raise _nothing(search.question, policy, search)
    return chosen


def compare_policies(search: Search, in_step: InStep | None = None) -> tuple[PolicyResult, ...]:
    """The best option of every policy that means something for the model; arguments as of
    `choose`.
    """
    in_step = in_step or InStep(search)
    precision = search.question.precision
    policies = [policy.for_weights(precision) for policy in _meant_for(search.question.model)]
    # those that allow the least first: what is found under them is known to those that allow more
    in_turn = sorted(policies, key=lambda policy: sum(map(policy.contains, policies)))
    found = {policy.name: in_step.choice(policy) for policy in in_turn}
    return tuple(PolicyResult(policy, found[policy.name]) for policy in policies)


def _meant_for(model: ModelSpec) -> list[Policy]:
    """Policies that are about such a model: of one without experts, none that places these."""
    return [
        policy
        for policy in POLICIES.values()
        if model.experts is not None or policy.name not in _OF_EXPERTS
    ]


def _with_plan(
    result: PolicyResult, policy: Policy, chosen: Option, question: Question
) -> PolicyResult:
    """Of the plan's policy, the plan; so of others that allow it, unless theirs is faster: what is
    known by all is told of each.
    """
    own = result.option
    if result.policy.name != policy.name:
        allowed = result.policy.allows(chosen.candidate, question.movable_layers)
        if not allowed or (own is not None and own.tokens_per_s > chosen.tokens_per_s):
            return result
    return replace(result, option=chosen)


def online_plan(search: Search, option: Option) -> OnlinePlan:
    """What the engine executes; of requests that are out of step and have prompts of one token,
    more of them while they are young than are counted.
    """
    return engine_plan(search.question, search.footprint, option, _more_places(search, option))


def _more_places(search: Search, option: Option) -> int:
    """Requests on the accelerator that an engine lets run beyond those that are counted."""
    if option.in_step_per_s is not None:
        return 0
    question, footprint, predictor = search.question, search.footprint, search.predictor
    return more_while_young(question, footprint, predictor, option.candidate)


def _arrivals(search: Search, chosen: Option) -> "Arrivals | None":
    if not search.question.lengths.duration_s:
        return None
    from tandem.planner.arrivals import at_arrivals

    rates = chosen.prediction.rates
    return at_arrivals(search.predictor, search.footprint, chosen.candidate, rates)


def _job_s(search: Search, chosen: Option, arrivals: "Arrivals | None") -> float:
    if chosen.in_step_per_s is not None:
        lengths = search.question.lengths
        return lengths.requests * lengths.generated_tokens / chosen.in_step_per_s
    if arrivals is not None and arrivals.job_s is not None:
        return arrivals.job_s
    rates = chosen.prediction.rates
    return search.predictor.job_s(rates, None if arrivals is None else arrivals.rates)


def _cpu_memory_bytes(search: Search, plan: OnlinePlan, use: TierUse) -> int | None:
    page, host_only = search.footprint.page, search.question.host_only
    blocks = plan.device_blocks if host_only else plan.host_blocks
    if blocks <= default_host_blocks(page, plan.max_model_len):
        return None
    return use.weights_bytes + use.workspace_bytes + blocks * page.bytes_per_block


def _spare_bytes(search: Search) -> int:
    footprint = search.footprint
    request = footprint.longest_blocks * footprint.block_bytes
    return footprint.device_kv_bytes("gpu-only", Elsewhere(), 1) - request


def useless_cohorts(question: Question, policy: Policy) -> str:
    """Why a policy has nothing for these requests: it serves all in cohorts; empty: it does not."""
    if question.cohorts_are_of_use or not set(policy.strategies) <= set(COHORT_STRATEGIES):
        return ""
    one = "are alone" if question.objective == "latency" else "generate a single token"
    return f"of no use to those that {one}"


def _nothing(question: Question, policy: Policy, search: Search) -> ConfigError:
    from tandem.planner.shortfall import describe_shortfall, find_shortfall

    if why := useless_cohorts(question, policy):
        kind = "policy" if policy.asked_strategy is None else "strategy"
        return ConfigError(
            f"{policy.asked_as} serves requests in cohorts, which are {why}; use another {kind}",
            param=kind,
        )
    if question.tpot_bound_s is not None:
        free = Search(replace(question, tpot_bound_s=None)).best(policy)
        if free is not None:
            return _too_slow(question, policy, free, question.tpot_bound_s)
    footprint = search.footprint
    layers = question.movable_layers
    reads = question.hardware.host.disk_bytes_per_s is not None
    apart = policy.least_resident(layers, reads=reads)
    apart = apart._replace(embedding=footprint.embedding_bytes > 0)
    where = "on disk" if apart.on_disk else "in host memory"
    weights = footprint.resident_bytes(Elsewhere())
    request = footprint.longest_blocks * footprint.block_bytes
    least = footprint.resident_bytes(apart) + footprint.workspace("gpu-only", 1)
    keeps = "" if policy.name == "auto" else f" under {policy.asked_as}"
    has = (
        f"with as many layers as can be {where} it needs {format_size(least)} on the "
        f"accelerator, which may give {format_size(question.device_bytes)}, and "
        f"{format_size(footprint.hosted_bytes(apart))} on the host, which may give "
        f"{format_size(question.host_bytes)}"
    )
    if question.host_only:
        keeps, has = "", f"the host may give {format_size(question.device_bytes)}"
        if reads:
            alone = Elsewhere(on_disk=layers)
            least = footprint.resident_bytes(alone) + footprint.workspace("gpu-only", 1)
            has = f"with every layer on disk it needs {format_size(least)} beside the KV; {has}"
    return ConfigError(
        f"the model does not fit{keeps}: weights {format_size(weights)} and "
        f"{format_size(request)} of KV for the longest request; {has}; "
        f"{describe_shortfall(question, find_shortfall(question, policy))}",
        param="model",
    )


def _too_slow(question: Question, policy: Policy, free: Option, bound_s: float) -> ConfigError:
    """Names the least bounds that are known to do.

    Args:
        free: a plan without a bound.
    """
    alone = replace(question, tpot_bound_s=None, objective="latency")
    fastest = Search(alone).best(policy) or free
    allowed = duration_to_allow(fastest.prediction.rates.worst_tpot_s)
    ways = f"--tpot-bound {allowed} would do"
    if question.objective == "throughput":
        # a steady state also reads the prompts of those that follow
        follows_s = _least_tpot_s(question, (free.candidate, fastest.candidate))
        ways = f"--tpot-bound {duration_to_allow(follows_s)} would do"
        if fastest.prediction.rates.worst_tpot_s < follows_s:
            ways += f", or {allowed} with --objective latency, which leaves out others' prompts"
    return ConfigError(
        f"nothing keeps {format_duration(bound_s)} per token on this hardware; {ways}",
        param="tpot_bound",
    )


def _least_tpot_s(question: Question, candidates: Iterable[Candidate]) -> float:
    """Of these, in steps of any size that may be chosen."""
    search = Search(replace(question, tpot_bound_s=None))
    tried = (
        candidate._replace(step_tokens=step) for candidate in candidates for step in question.steps
    )
    fitting = (candidate for candidate in tried if search.footprint.fits(candidate))
    return min(search.predictor.rates(candidate).worst_tpot_s for candidate in fitting)
