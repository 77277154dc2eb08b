"""Which attentions of cohorts are still to come: a join that is refused ends a chain."""


class CohortChain:
    """Follows joins in the order in which they are decided.

    A cohort's attention is begun by the lane that joined the one before it. Joins may be submitted
    before it is known whether the last one happened; when it has not, those after it wait for what
    will never come, and are refused with it. Later ones begin anew where the cohort stands.
    """

    def __init__(self) -> None:
        self._coming: dict[int, int] = {}

    def submitted(self, cohort_id: int, signal: int) -> None:
        """A lane that waits for attention `signal`; a cohort's first one for none (0)."""
        self._coming.setdefault(cohort_id, signal + 1)

    def is_broken(self, cohort_id: int, signal: int) -> bool:
        """Whether no lane has begun attention `signal`; to be asked when its turn has come."""
        return signal > self._coming.get(cohort_id, signal)

    def joined(self, cohort_id: int, signal: int) -> None:
        """A lane has joined attention `signal`, and begins the next one."""
        self._coming[cohort_id] = signal + 1

    def forget(self, cohort_id: int) -> None:
        """A cohort has ended."""
        self._coming.pop(cohort_id, None)
