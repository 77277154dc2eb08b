"""Cohorts and their passes where no plan has decided about them."""

from tandem.plan.strategy_names import PASS_STRATEGIES
from tandem.plan.weights import WeightPlacement, homes_by_layer

_MAX_COHORTS, _MAX_COHORT_ROWS = 1, 256
_TURNS = 2  # cohorts where steps are chosen: they take turns where the CPU does not keep up
_IN_TURNS = ("auto", "symmetric", "rendezvous-ahead")


def usual_cohorts(strategy: str, hosted_rows: int) -> tuple[int, int]:
    """How many may be under way, and their rows: two where steps are chosen, where they take turns,
    all on the host, and where both join every sweep.

    Args:
        hosted_rows: that may lie on the host at once.
    """
    if strategy not in _IN_TURNS:
        return _MAX_COHORTS, _MAX_COHORT_ROWS
    return _TURNS, min(_MAX_COHORT_ROWS, -(-hosted_rows // _TURNS))


def usual_passes(
    strategy: str, placement: tuple[WeightPlacement, ...], asked: int | None = None
) -> int:
    """Of its own, that a cohort may have in a sweep: one beside every layer, if all are resident.

    Args:
        asked: in place of those; None: nobody did.
    """
    homes = homes_by_layer(placement).values()
    if strategy not in PASS_STRATEGIES or any(home != "resident" for home in homes):
        return 0
    return len(homes) if asked is None else asked
