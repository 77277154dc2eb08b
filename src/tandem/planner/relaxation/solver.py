"""HiGHS, which minimises linear programmes."""

from itertools import chain

import highspy
import numpy as np

from tandem.planner.relaxation.programme import INFINITY, Optimum, Programme

_TOLERANCE = 1e-10  # the finest that HiGHS takes
_DUAL, _PRIMAL = 1, 4
"""HiGHS's numbers of simplex methods."""
_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "primal_feasibility_tolerance": _TOLERANCE,
    "dual_feasibility_tolerance": _TOLERANCE,
}


class Solver:
    """HiGHS, for one programme after the other; what it gives depends on none before, but for one
    whose basis it is given.

    Attributes:
        programmes: that it was given.
    """

    def __init__(self) -> None:
        self.programmes: int = 0
        self._highs = highspy.Highs()
        for option, value in _OPTIONS.items():
            self._highs.setOptionValue(option, value)

    def minimise(
        self, programme: Programme, begin: highspy.HighsBasis | None = None
    ) -> Optimum | None:
        """The optimum; None if the rows contradict each other.

        Args:
            begin: of a programme of as many rows and columns; of several optima, the one that is
                found depends on it.

        Raises:
            RuntimeError: the solver gave up.
        """
        self.programmes += 1
        model = _model(programme)
        # presolving costs as much as solving, so most are solved without; but then no contradiction
        # is certain: of rows that leave one point, rounding leaves none. A few the dual simplex
        # never tells, and the primal one does
        for presolve, basis, strategy in (
            ("off", begin, _DUAL),
            ("on", None, _DUAL),
            ("on", None, _PRIMAL),
        ):
            self._highs.setOptionValue("presolve", presolve)
            self._highs.setOptionValue("simplex_strategy", strategy)
            self._highs.passModel(model)
            if basis is not None:
                self._highs.setBasis(basis)
            self._highs.run()
            status = self._highs.getModelStatus()
            if status == highspy.HighsModelStatus.kOptimal:
                value = self._highs.getInfo().objective_function_value
                columns = tuple(self._highs.getSolution().col_value)
                return Optimum(value, columns, self._highs.getBasis())
            if status == highspy.HighsModelStatus.kInfeasible and presolve == "on":
                return None
        raise RuntimeError(f"the linear programme ended as '{status.name}'")


def _model(programme: Programme) -> highspy.HighsLp:
    """In the solver's form."""
    model = highspy.HighsLp()
    num_rows, num_columns = programme.size
    model.num_col_, model.num_row_ = num_columns, num_rows
    every, limits, is_equality = zip(*programme.rows, strict=True)
    model.col_cost_, model.col_upper_ = np.array(programme.columns).T.copy()
    model.col_lower_ = np.zeros(num_columns)
    flat = np.fromiter(chain.from_iterable(chain.from_iterable(every)), np.float64)
    columns, factors = flat[::2].astype(np.int64), flat[1::2]
    rows = np.repeat(np.arange(num_rows), [len(entries) for entries in every])
    # a column that a row names more than once has the sum
    places = rows * num_columns + columns
    sums = np.bincount(places, factors, num_rows * num_columns)
    dense = sums.reshape(num_rows, num_columns)
    scales = np.abs(dense).max(axis=1)
    scales[scales == 0.0] = 1.0
    most = np.array(limits) / scales
    model.row_lower_ = np.where(is_equality, most, -INFINITY)
    model.row_upper_ = most
    row_of, column_of = dense.nonzero()
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.searchsorted(row_of, np.arange(num_rows + 1)).astype(np.int32)
    matrix.index_ = column_of.astype(np.int32)
    matrix.value_ = dense[row_of, column_of] / scales[row_of]
    return model
