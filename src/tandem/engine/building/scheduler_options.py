"""What the scheduler is told: bounds, choices, and what steps take."""

from pathlib import Path
from typing import TYPE_CHECKING

from tandem.engine.sizing.expert_hits_file import read_expert_use
from tandem.memory.page import KVPageSpec
from tandem.plan.online import OnlinePlan
from tandem.plan.preempted import preemption_mode
from tandem.plan.strategy_names import PRICED_STRATEGIES
from tandem.plan.sweep_layers import SweepChoice
from tandem.scheduler.config import SchedulerConfig
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.tier import TIERS
from tandem.spec.units import parse_duration_s

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices

_HOST_PREFIX_SHARE = 0.5


def host_prefix_share(
    config: EngineConfig, plan: OnlinePlan, hardware: HardwareSpec | None
) -> float:
    """Of the host's blocks, how many may hold copies of the device's prefix cache at most."""
    if not (plan.host_blocks and config.enable_prefix_caching):
        return 0.0
    if config.host_prefix_share is not None:
        return config.host_prefix_share
    return 0.0 if hardware is None else _HOST_PREFIX_SHARE


def prices_of(
    plan: OnlinePlan,
    spec: ModelSpec,
    precision: Precision,
    page: KVPageSpec,
    hardware: HardwareSpec | None,
    config: EngineConfig,
    share: float,
) -> "StepPrices | None":
    """What the plan's steps take, if its strategy asks, or ways for KV to come back are weighed, or
    prompts are ordered by it.

    Args:
        share: of the host's blocks that may hold copies of cached ones.

    Raises:
        ConfigError: the strategy asks, or a bound on first tokens, or preemption by both ways, and
            nothing is known of the machine's rates; or nothing does whose predictions could be
            calibrated.
    """
    if config.ttft_bound is not None and hardware is None:
        raise ConfigError(
            f"--ttft-bound {config.ttft_bound} orders prompts by predicted time: "
            + _why_unpriced(hardware),
            param="ttft_bound",
        )
    if config.preemption_mode == "mix" and hardware is None:
        raise ConfigError(
            "--preemption-mode mix splits preempted requests by predicted time: "
            + _why_unpriced(hardware),
            param="preemption_mode",
        )
    priced = plan.strategy in PRICED_STRATEGIES
    weighs = share > 0 or config.preemption_mode in ("auto", "mix")
    weighs = weighs or config.ttft_bound is not None
    if not priced and (hardware is None or not weighs):
        if config.calibrate:
            raise ConfigError(
                "--calibrate corrects predicted times, by which nothing is chosen here: "
                + _why_unpriced(hardware),
                param="calibrate",
            )
        return None
    if hardware is None:
        raise ConfigError(
            f"strategy {plan.strategy} chooses every step by predicted time, and nothing is known "
            "of this machine's rates; run `tandem profile`, or use --strategy ride-along",
            param="strategy",
        )
    from tandem.cost.step_rates import step_prices

    device, host = (each.bytes_per_block_layer / each.block_size for each in map(page.on, TIERS))
    use = None
    if config.expert_hits is not None:
        use = read_expert_use(Path(config.expert_hits), spec)
    return step_prices(plan, spec, precision, hardware, device, host, use)


def _why_unpriced(hardware: HardwareSpec | None) -> str:
    if hardware is None:
        return "that takes an accelerator, and rates of it (`tandem profile`); leave it out"
    return "use --strategy auto with --max-host-seqs, or leave it out"


def scheduler_config(plan: OnlinePlan, config: EngineConfig, spec: ModelSpec) -> SchedulerConfig:
    """The plan's numbers and the user's choices as the scheduler takes them."""
    return SchedulerConfig(
        num_layers=spec.num_layers,
        max_model_len=plan.max_model_len,
        block_size=plan.block_size,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_num_queued_reqs=config.max_num_queued_reqs,
        kv_placement=plan.kv_placement,
        max_host_seqs=plan.max_host_seqs,
        max_device_seqs=plan.max_device_seqs,
        prompts_on_device=plan.prompts_on_device,
        split_blocks=plan.split_blocks,
        preemption_mode=preemption_mode(
            plan, config.preemption_mode, converts=config.cpu_kv_dtype != "auto"
        ),
        launch_ahead_steps=plan.launch_ahead_steps,
        max_cohorts=plan.max_cohorts,
        max_cohort_rows=plan.max_cohort_rows,
        max_sampled_rows=plan.max_sampled_rows,
        max_join_wait_s=plan.max_join_wait_s,
        interposition_budget=plan.interposition_budget,
        tpot_bound_s=_seconds(config.tpot_bound),
        ttft_bound_s=_seconds(config.ttft_bound),
        calibrate=config.calibrate,
        layers=SweepChoice.of_plan(plan.weights, plan.cpu_rules),
        seed=config.seed,
    )


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration_s(duration)
