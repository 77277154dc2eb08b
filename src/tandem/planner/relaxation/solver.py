"""HiGHS, which minimises linear programmes."""

from tandem.planner.relaxation.highs import INFEASIBLE, OPTIMAL, Basis, Highs, Matrix
from tandem.planner.relaxation.programme import INFINITY, Entries, Optimum, Programme

_TOLERANCE = 1e-10  # the finest that HiGHS takes
_DUAL, _PRIMAL = 1, 4
"""HiGHS's numbers of simplex methods."""


class Solver:
    """HiGHS, for one programme after the other; what it gives depends on none before, but for one
    whose basis it is given.

    Attributes:
        programmes: that it was given.
    """

    def __init__(self) -> None:
        self.programmes: int = 0
        self._highs = Highs()
        self._highs.set_flag("output_flag", False)
        self._highs.set_number("threads", 1)
        for feasibility in "primal", "dual":
            self._highs.set_real(f"{feasibility}_feasibility_tolerance", _TOLERANCE)

    def minimise(self, programme: Programme, begin: Basis | None = None) -> Optimum | None:
        """The optimum; None if the rows contradict each other.

        Args:
            begin: of a programme of as many rows and columns; of several optima, the one that is
                found depends on it.

        Raises:
            RuntimeError: the solver gave up.
        """
        self.programmes += 1
        highs, model, status = self._highs, _model(programme), OPTIMAL
        # presolving costs as much as solving, so most are solved without; but then no contradiction
        # is certain: of rows that leave one point, rounding leaves none. A few the dual simplex
        # never tells, and the primal one does
        for presolve, basis, strategy in (
            ("off", begin, _DUAL),
            ("on", None, _DUAL),
            ("on", None, _PRIMAL),
        ):
            highs.set_word("presolve", presolve)
            highs.set_number("simplex_strategy", strategy)
            highs.take(*model)
            if basis is not None:
                highs.begin_at(basis)
            status = highs.run()
            if status == OPTIMAL:
                return Optimum(highs.value, highs.solution, highs.basis)
            if status == INFEASIBLE and presolve == "on":
                return None
        raise RuntimeError(f"the linear programme ended with status {status}")


_Model = tuple[list[float], list[float], list[float], list[float], Matrix]


def _model(programme: Programme) -> _Model:
    """In the solver's form: costs, upper ends, both ends of rows, and coefficients."""
    costs, uppers = zip(*programme.columns, strict=True)
    lowers, limits = list[float](), list[float]()
    starts, columns, values = list[int](), list[int](), list[float]()
    for entries, limit, is_equality in programme.rows:
        sums = _summed(entries)
        scale = max(map(abs, sums.values()), default=0.0) or 1.0
        starts.append(len(columns))
        for column in sorted(sums):
            if sums[column]:
                columns.append(column)
                values.append(sums[column] / scale)
        limits.append(limit / scale)
        lowers.append(limits[-1] if is_equality else -INFINITY)
    starts.append(len(columns))
    return list(costs), list(uppers), lowers, limits, Matrix(starts, columns, values)


def _summed(entries: Entries) -> dict[int, float]:
    """Of a column that a row names more than once, the sum."""
    sums = dict[int, float]()
    for column, factor in entries:
        sums[column] = sums.get(column, 0.0) + factor
    return sums
