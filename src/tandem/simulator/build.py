"""What is simulated: a plan, the hardware that it is for, and requests."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tandem.cost.step_prices import StepPrices
from tandem.cost.step_rates import step_prices
from tandem.memory.pool import BlockPool
from tandem.plan.online import OnlinePlan
from tandem.plan.preempted import preemption_mode
from tandem.plan.stepped import stepped
from tandem.plan.strategy_names import PRICED_STRATEGIES
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import disk_layers, resident_experts
from tandem.planner import native
from tandem.planner.answer import choose, online_plan
from tandem.planner.demand import Demands
from tandem.planner.fluid.queues import Span
from tandem.planner.footprint import Footprint
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES, find_policy, strategy_alone
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import with_steps_that_fit
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.counting_compiler import CountingCompiler
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.step_compiler import StepCompiler
from tandem.scheduler.strategies.registry import make_strategy
from tandem.simulator.costs import ProgramCosts
from tandem.simulator.executor import SimulatedExecutor
from tandem.simulator.native_queues import NativeQueues
from tandem.simulator.program_queues import PythonQueues
from tandem.spec.config import PreemptionMode
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class Planned:
    """What the planner would run.

    Attributes:
        option: what is predicted of it, whose strategy the plan's steps may leave: see `stepped`;
            None of a plan from elsewhere.
    """

    question: Question
    option: Option | None
    plan: OnlinePlan

    @property
    def chooses_steps(self) -> bool:
        """Whether what a step does is decided as it comes, not by the plan."""
        return self.plan.strategy in PRICED_STRATEGIES


def plan_for(question: Question, strategy: str | None = None, policy_name: str = "auto") -> Planned:
    """The planner's choice, of that strategy alone, or under that policy, unless it is `auto`.

    Args:
        strategy: one that chooses each step makes of the plan what it can; None: the plan's own.

    Raises:
        ConfigError: unknown strategy or policy, or both of them restrict the plan; nothing fits, or
            nothing keeps the bound on time per token; a strategy that the plan's layers forbid.
    """
    chooses = strategy in PRICED_STRATEGIES
    policy = POLICIES["auto"] if strategy is None or chooses else strategy_alone(strategy)
    if policy_name != "auto":
        if strategy is not None and not chooses:
            raise ConfigError(
                f"--strategy {strategy} and --policy both say what a plan may be; leave out one of "
                "them",
                param="policy",
            )
        policy = find_policy(policy_name)
    policy = policy.for_weights(question.precision)
    question = with_steps_that_fit(question, policy)
    search = Search(question)
    option = choose(search, policy)
    plan = online_plan(search, option)
    return Planned(question, option, stepped(plan, strategy) if strategy and chooses else plan)


@dataclass(frozen=True, slots=True)
class Machine:
    """A scheduler, and the executor that takes its programs."""

    scheduler: Scheduler
    executor: SimulatedExecutor
    token_id: int


def build(
    planned: Planned,
    seed: int = 0,
    on_span: Callable[[Span], None] | None = None,
    ttft_bound_s: float | None = None,
    *,
    preemption: PreemptionMode | None = None,
    counted: bool = False,
    compiled: bool = native.available(),
) -> Machine:
    """An engine of the plan's sizes on the question's hardware.

    Prefixes are not cached: all prompts are alike, which real ones are not.

    Args:
        preemption: what becomes of preempted KV; None: as an engine has it. Where it is copied,
            all memory of the host that weights leave is there for it.
        counted: lanes of sweeps are counted where each row lies in one tier, not compiled; they
            take as long.
        compiled: by the compiled queues, unless somebody wants spans; to the bit as Python's.
    """
    question, plan = planned.question, planned.plan
    model, hardware = question.model, question.hardware
    mode = preemption_mode(plan, preemption, converts=question.precision.host_kv is not None)
    weighs = ttft_bound_s is not None or mode in ("auto", "mix")
    scheduler = Scheduler(
        replace(_config(planned, seed, ttft_bound_s), preemption_mode=mode),
        make_strategy(plan.strategy),
        {
            Tier.DEVICE: BlockPool(Tier.DEVICE, plan.device_blocks),
            Tier.HOST: BlockPool(Tier.HOST, _host_blocks(planned, mode)),
        },
        vocab_size=model.vocab_size,
        eos_ids=model.eos_token_ids,
        enable_prefix_caching=False,
        prices=prices_of(planned, weighs=weighs),
        clock=lambda: executor.now_s,
        compiler=partial(CountingCompiler, windows=model.layer_windows)
        if counted
        else StepCompiler,
    )
    token = _ordinary_token(model)
    costs = _costs(planned)
    pool = hardware.host.pool_bytes_per_s
    if compiled and on_span is None:
        # where the clock has a say in what is proposed, it is asked whenever something has happened
        queues = NativeQueues(costs, pool, each=ttft_bound_s is not None)
    else:
        queues = PythonQueues(costs, pool, on_span)
    launch_s = hardware.accelerator.launch_latency_s
    executor = SimulatedExecutor(costs, queues, launch_s, token)
    return Machine(scheduler, executor, token)


def _config(planned: Planned, seed: int, ttft_bound_s: float | None) -> SchedulerConfig:
    """As an engine of the plan would have it."""
    question, plan = planned.question, planned.plan
    return SchedulerConfig(
        num_layers=question.model.num_layers,
        max_model_len=plan.max_model_len,
        block_size=plan.block_size,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        kv_placement=plan.kv_placement,
        max_host_seqs=plan.max_host_seqs,
        max_device_seqs=plan.max_device_seqs,
        prompts_on_device=plan.prompts_on_device,
        split_blocks=plan.split_blocks,
        launch_ahead_steps=plan.launch_ahead_steps,
        max_cohorts=plan.max_cohorts,
        max_cohort_rows=plan.max_cohort_rows,
        max_sampled_rows=plan.max_sampled_rows,
        max_join_wait_s=plan.max_join_wait_s,
        interposition_budget=plan.interposition_budget,
        tpot_bound_s=question.tpot_bound_s,
        ttft_bound_s=ttft_bound_s,
        layers=SweepChoice.of_plan(plan.weights, plan.cpu_rules),
        seed=seed,
    )


def _costs(planned: Planned) -> ProgramCosts:
    question, plan = planned.question, planned.plan
    model = question.model
    return ProgramCosts(
        Demands(question, Footprint(question).page, counted=True),
        plan.block_size,
        model.layer_windows,
        model.dense_layers,
        hosted=plan.embedding == "host",
        # of all alike: the planner does not know which are used more
        experts=max(map(len, resident_experts(plan.weights).values()), default=0),
        read_in_place=disk_layers(plan.weights) if question.host_only else (),
    )


def _host_blocks(planned: Planned, preemption: PreemptionMode) -> int:
    """The plan's, or beside a plan that attends to nothing there what copies of KV may take."""
    option, blocks = planned.option, planned.plan.host_blocks
    if option is None or blocks or preemption == "recompute":
        return blocks
    footprint = Footprint(planned.question)
    return footprint.host_kv_bytes(option.candidate.elsewhere) // footprint.block_bytes


def prices_of(planned: Planned, *, weighs: bool = False) -> StepPrices | None:
    """What the plan's steps take, if its strategy asks, or something else is weighed by it."""
    question, plan = planned.question, planned.plan
    if plan.strategy not in PRICED_STRATEGIES and not weighs:
        return None
    page = Footprint(question).page
    size = page.bytes_per_block_layer / page.block_size
    return step_prices(plan, question.model, question.precision, question.hardware, size, size)


def _ordinary_token(model: ModelSpec) -> int:
    """One that ends no sequence."""
    return next(token for token in range(model.vocab_size) if token not in model.eos_token_ids)
