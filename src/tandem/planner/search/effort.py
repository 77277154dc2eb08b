"""How much a search does before it answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """How many candidates virtual time is spent on.

    Attributes:
        tries: from the piles. moves: from each start. moved_kinds: starts beside the best, and
            beside the best of what was known and of what was tried; 0: none but the best.
        policies: whether others that allow less are searched as if alone, and what is tried and is
            not as good is known in full all the same, as alternatives are.
        rounds: whether what is near the linear programme's optimum is tried.
        sizes: whether steps of other sizes are.
    """

    tries: int
    moves: int
    moved_kinds: int
    policies: bool
    rounds: bool
    sizes: bool


FULL = Effort(16, 8, 2, policies=True, rounds=True, sizes=True)
REDUCED = Effort(5, 4, 0, policies=False, rounds=False, sizes=False)
"""Of a machine much like one that was searched."""
OF_A_SIZE = Effort(16, 8, 0, policies=False, rounds=True, sizes=False)
"""Of one size of steps, beside a search of the usual size."""
