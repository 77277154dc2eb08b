"""What steps may reach: shapes, cohorts under way, passes beside layers, the strategy. Pure."""

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.plan_checks import may_choose_steps
from tandem.memory.sizing import PoolSizes
from tandem.memory.workspace import LargestStep
from tandem.plan.online import OnlinePlan
from tandem.plan.strategy_names import COHORT_STRATEGIES, PASS_STRATEGIES
from tandem.plan.weights import WeightPlacement, homes_by_layer
from tandem.spec.config import EngineConfig

_MAX_COHORTS, _MAX_COHORT_ROWS = 1, 256
_TURNS = 2  # cohorts where steps are chosen: they take turns where the CPU does not keep up


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
    """How many may be under way, and their rows: two where steps are chosen, where they take turns,
    all on the host, and where both join every sweep.
    """
    if strategy not in ("auto", "symmetric", "rendezvous-ahead"):
        return _MAX_COHORTS, _MAX_COHORT_ROWS
    hosted = config.max_host_seqs or config.max_num_seqs
    return _TURNS, min(_MAX_COHORT_ROWS, -(-hosted // _TURNS))


def interposition_budget_of(
    config: EngineConfig, strategy: str, placement: tuple[WeightPlacement, ...]
) -> int:
    """Unless it is bounded, a cohort may have a pass beside every layer, if all are resident."""
    homes = homes_by_layer(placement).values()
    if strategy not in PASS_STRATEGIES or any(home != "resident" for home in homes):
        return 0
    asked = config.interposition_budget
    return len(homes_by_layer(placement)) if asked is None else asked


def strategy_of(config: EngineConfig, sizes: PoolSizes, *, chooses: bool) -> str:
    """`auto` is device first; what does not fit rides along on the host, if there is one, unless
    every step can be chosen by predicted time.
    """
    if config.strategy != "auto":
        return config.strategy
    if chooses and sizes.host_blocks:
        return "auto"
    return "ride-along" if sizes.host_blocks else "gpu-only"
