"""Plans in words."""

from collections import Counter

from tandem.plan.online import OnlinePlan
from tandem.plan.weights import WeightPlacement, homes_by_layer


def describe_plan(plan: OnlinePlan, *, host_only: bool) -> str:
    """One line for people; on the host alone, no word of an accelerator."""
    if host_only:
        homes = describe_homes(plan.weights)
        return f"the host alone, {homes}; up to {plan.max_num_seqs} requests at once"
    hosted = f", at most {plan.max_host_seqs} of them on the host" if plan.max_host_seqs else ""
    hosted = ", all KV on the host" if plan.kv_placement == "host" else hosted
    return (
        f"{plan.strategy}, {describe_homes(plan.weights)}; up to {plan.max_num_seqs} requests at "
        f"once{hosted}"
    )


def describe_homes(weights: tuple[WeightPlacement, ...]) -> str:
    """Layers of each home."""
    homes = Counter(homes_by_layer(weights).values())
    return ", ".join(f"{count} layers {home}" for home, count in sorted(homes.items()))
