"""A plan's pools and sizes, executed by a strategy that chooses each step by predicted time."""

from dataclasses import replace

from tandem.plan.online import OnlinePlan
from tandem.plan.strategy_names import PRICED_STRATEGIES, RESIDENT_STRATEGIES
from tandem.plan.usual_cohorts import usual_cohorts, usual_passes
from tandem.plan.weights import homes_by_layer
from tandem.spec.errors import ConfigError


def stepped(plan: OnlinePlan, strategy: str) -> OnlinePlan:
    """The same weights, pools and requests in each tier; what each step does of it is chosen as it
    comes. Cohorts are those that an engine of this strategy has without a plan.

    Args:
        strategy: one of `PRICED_STRATEGIES`.

    Raises:
        ConfigError: the strategy needs all layers on the accelerator, and the plan has not.
    """
    assert strategy in PRICED_STRATEGIES, f"{strategy} chooses no steps"
    homes = homes_by_layer(plan.weights).values()
    if strategy in RESIDENT_STRATEGIES and any(home != "resident" for home in homes):
        raise ConfigError(
            f"--strategy {strategy} needs all layers on the accelerator, and the plan has some "
            "elsewhere; use --policy neo, or another strategy",
            param="strategy",
        )
    count, rows = usual_cohorts(strategy, plan.max_host_seqs or plan.max_num_seqs)
    return replace(
        plan,
        strategy=strategy,
        max_cohorts=count,
        max_cohort_rows=rows,
        interposition_budget=usual_passes(strategy, plan.weights),
    )
