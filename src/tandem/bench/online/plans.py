"""Plans of every policy from a profile: nothing else is known here of the machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tandem.bench.online.cell import DTYPE
from tandem.cost.step_prices import AttentionPrice, StepPrices
from tandem.cost.step_rates import step_prices
from tandem.memory.margin import margin_bytes
from tandem.plan.online import OnlinePlan
from tandem.plan.stepped import stepped
from tandem.plan.strategy_names import PRICED_STRATEGIES
from tandem.planner.answer import online_plan
from tandem.planner.demand import Demands
from tandem.planner.footprint import Footprint
from tandem.planner.load import TierLoad
from tandem.planner.option import Option
from tandem.planner.places import num_places
from tandem.planner.policies import Policy, find_policy
from tandem.planner.question import Lengths, Question
from tandem.planner.search.search import Search
from tandem.profiling.hardware import measured_hardware
from tandem.profiling.profile import Profile
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.workload import Workload

ENGINE = "engine"
"""Before the name of a strategy that chooses each step."""
_FITTED = TierLoad(1, 512), TierLoad(64, 512)
"""Batches by which attention on the host is priced: a start, and so much for each key."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a policy would do; None if it cannot run this at all.

    Attributes:
        policy: or `engine` and the strategy that chooses each step of `auto`'s plan.
        question: that it was asked.
        refusal: why it cannot, where that is known.
    """

    policy: str
    question: Question
    option: Option | None
    plan: OnlinePlan | None
    refusal: str | None = None

    @property
    def predicted_per_s(self) -> float | None:
        """Tokens per second; None where steps are chosen as they come: no plan is of these."""
        if self.option is None or self.plan is None or self.plan.strategy in PRICED_STRATEGIES:
            return None
        return self.option.prediction.rates.tokens_per_s

    @property
    def counted_rows(self) -> int:
        """Requests that run at once in the mean: the plan may allow more while they are young."""
        assert self.option is not None, f"{self.policy} cannot run this"
        assert self.plan is not None
        return min(num_places(self.question, self.option.candidate), self.plan.max_num_seqs)

    def describe(self) -> str:
        """What it does, in a line."""
        if self.option is None or self.plan is None:
            return "cannot run this" if self.refusal is None else f"cannot run this: {self.refusal}"
        found = self.option.candidate.describe(self.question.model.num_layers)
        if self.plan.strategy in PRICED_STRATEGIES:
            found += f"; each step chosen by {self.plan.strategy}"
        return found


def ask(
    profile: Profile,
    model: ModelSpec,
    workload: Workload,
    host_bytes: int,
    max_num_batched_tokens: int,
    step_sizes: tuple[int, ...] = (),
) -> Question:
    """The planner's question.

    Args:
        host_bytes: of the host's memory, what may be used.
        step_sizes: from which a plan may choose in place of `max_num_batched_tokens`.
    """
    hardware = measured_hardware(profile, host_bytes)
    card = hardware.accelerator.memory_bytes
    return Question(
        model=model,
        hardware=hardware,
        precision=Precision.uniform(DTYPE),
        lengths=Lengths.of(workload),
        device_bytes=card - margin_bytes(card),
        host_bytes=host_bytes,
        max_num_batched_tokens=max_num_batched_tokens,
        measured=profile.host,
        step_sizes=step_sizes,
    )


def plan_policies(question: Question, policies: Sequence[str]) -> tuple[Planned, ...]:
    """Each policy's plan, in that order.

    Args:
        policies: by name; they choose the size of their steps as far as the question allows.
            `NAME/TOKENS` with steps of at most so many tokens, in which prompts are read in chunks
            of that size.

    Raises:
        ConfigError: an unknown policy, or one that cannot be planned.
    """
    searches: dict[int | None, Search] = {}
    planned: list[Planned] = []
    for name in policies:
        policy, tokens = parse_policy(name)
        if tokens not in searches:
            asked = question
            if tokens is not None:
                asked = replace(question, max_num_batched_tokens=tokens, step_sizes=())
            searches[tokens] = Search(asked)
        search = searches[tokens]
        option = search.choice(policy)
        plan = None if option is None else online_plan(search, option)
        planned.append(Planned(name, search.question, option, plan))
    return tuple(planned)


def engine_rows(auto: Planned, strategies: Sequence[str]) -> Iterator[Planned]:
    """The engine's own strategies, which choose each step, on the pools of a plan.

    Args:
        auto: whose plan has the pools.
        strategies: as `stepped` takes them.
    """
    for strategy in strategies:
        option = plan = refusal = None
        if auto.plan is not None:
            try:
                option, plan = auto.option, stepped(auto.plan, strategy)
            except ConfigError as error:
                option, refusal = (
                    None,
                    str(error),
                )  # such as layers that are not where it needs them
        yield Planned(f"{ENGINE} {strategy}", auto.question, option, plan, refusal)


def parse_policy(name: str) -> tuple[Policy, int | None]:
    """A policy, and the most tokens of its steps if the name says.

    Raises:
        ConfigError: an unknown policy, one that cannot be planned, or no number of tokens.
    """
    policy, slash, tokens = name.partition("/")
    if slash and not (tokens.isdecimal() and int(tokens)):
        raise ConfigError(
            f"--policy '{name}' names no size of a step; write tokens, as gpu-only/256",
            param="policy",
        )
    return find_policy(policy), int(tokens) if slash else None


def prices_of(question: Question, plan: OnlinePlan) -> StepPrices | None:
    """By which an engine chooses its steps, from the same profile as the plan; None if it does not.

    Attention on the host is as it was measured, all else by rates.
    """
    if plan.strategy not in PRICED_STRATEGIES:
        return None
    page = Footprint(question).page
    size = page.bytes_per_block_layer / page.block_size
    prices = step_prices(plan, question.model, question.precision, question.hardware, size, size)
    measured = Demands(question, page).measured
    if measured is None:
        return prices
    few, many = _FITTED
    few_s, many_s = measured.attend_s(few, 0), measured.attend_s(many, 0)
    few_keys, many_keys = few.attention(0).keys, many.attention(0).keys
    key_s = (many_s - few_s) / (many_keys - few_keys)
    start_s = prices.host.start_s + max(0.0, few_s - few_keys * key_s)
    host = AttentionPrice(start_s, key_s, prices.host.pair_s, 0.0)
    return replace(prices, host=host)
