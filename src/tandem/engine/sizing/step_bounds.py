"""What steps may reach: shapes, cohorts under way, passes beside layers, the strategy. Pure."""

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.plan_checks import may_choose_steps
from tandem.memory.sizing import PoolSizes
from tandem.memory.workspace import LargestStep
from tandem.plan.online import OnlinePlan
from tandem.plan.strategy_names import COHORT_STRATEGIES
from tandem.plan.usual_cohorts import usual_cohorts
from tandem.spec.config import EngineConfig


def largest_step(
    config: EngineConfig, capacities: Capacities, planned: OnlinePlan | None = None
) -> LargestStep:
    """The shapes that a step may reach; a sequence in a cohort is none of the main lane's.

    Args:
        planned: cohorts that have been decided already, and what sweeps sample.
    """
    cohorts, cohort_rows, sampled = 0, 0, None
    if config.strategy in COHORT_STRATEGIES or may_choose_steps(config, capacities):
        count, cohort_rows = cohorts_of(config, config.strategy)
        if planned is not None:
            count, cohort_rows = planned.max_cohorts, planned.max_cohort_rows
            if planned.max_sampled_rows < planned.max_num_seqs:
                sampled = planned.max_sampled_rows
        cohorts = count * cohort_rows
    both_tiers = capacities.host_bytes > 0 and config.strategy != "gpu-only"
    on_gpu = capacities.real and capacities.device_location == "device"
    return LargestStep(
        tokens=config.max_num_batched_tokens,
        rows=config.max_num_seqs,
        cohort_tokens=min(cohorts, config.max_num_seqs),
        tiers=2 if both_tiers else 1,
        device_type="cuda" if on_gpu else "cpu",
        sampled_rows=sampled,
        cohort_rows=cohort_rows,
    )


def cohorts_of(config: EngineConfig, strategy: str) -> tuple[int, int]:
    """How many may be under way, and their rows."""
    return usual_cohorts(strategy, config.max_host_seqs or config.max_num_seqs)


def strategy_of(config: EngineConfig, sizes: PoolSizes, *, chooses: bool) -> str:
    """`auto` is device first; what does not fit rides along on the host, if there is one, unless
    every step can be chosen by predicted time.
    """
    if config.strategy != "auto":
        return config.strategy
    if chooses and sizes.host_blocks:
        return "auto"
    return "ride-along" if sizes.host_blocks else "gpu-only"
