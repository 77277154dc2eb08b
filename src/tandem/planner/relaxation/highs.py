"""HiGHS's C interface, of the library that `highspy` brings.

`highspy` itself imports numpy, which takes longer than to solve all programmes of a plan.
"""

import ctypes
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from math import isfinite, isnan
from pathlib import Path
from typing import NamedTuple
from weakref import finalize

from tandem.spec.errors import TandemError

OPTIMAL, INFEASIBLE = 7, 8
FAILED = 4
"""HiGHS's own number for an error while solving."""
_ERROR = -1
"""Of a call of its interface."""
_REMEDY = "pip install 'highspy>=1.15'"
_ROWWISE, _MINIMISE = 2, 1
_INT_BYTES, _REAL_BYTES = 4, 8


class MissingSolverError(TandemError, ImportError):
    """There is no solver. Also an `ImportError`, for whoever can do without what needs one."""


class Basis(NamedTuple):
    """HiGHS's status of each column and of each row."""

    columns: "array[int]"
    rows: "array[int]"


class Matrix(NamedTuple):
    """Coefficients row by row.

    Attributes:
        starts: of each row, its first entry. columns, values: of all entries.
    """

    starts: Sequence[int]
    columns: Sequence[int]
    values: Sequence[float]


class Highs:
    """One solver.

    Raises:
        TandemError: an option, a programme or a basis that this HiGHS does not take.
    """

    def __init__(self) -> None:
        self._api = _library()
        self._solver = ctypes.c_void_p(self._api.Highs_create())
        self._size = 0, 0
        finalize(self, self._api.Highs_destroy, self._solver)

    def set_flag(self, option: str, value: bool) -> None:
        """An option that is on or off."""
        self._set(option, self._api.Highs_setBoolOptionValue, int(value))

    def set_number(self, option: str, value: int) -> None:
        """An option that is a whole number."""
        self._set(option, self._api.Highs_setIntOptionValue, value)

    def set_real(self, option: str, value: float) -> None:
        """An option that is any number."""
        self._set(option, self._api.Highs_setDoubleOptionValue, ctypes.c_double(value))

    def set_word(self, option: str, value: str) -> None:
        """An option that is a word."""
        self._set(option, self._api.Highs_setStringOptionValue, value.encode())

    def _set(self, option: str, setter: Callable[..., int], value: object) -> None:
        # one that it does not know would be what it is by default, unsaid
        if setter(self._solver, option.encode(), value) == _ERROR:
            raise TandemError(f"HiGHS does not take its option {option}; {_REMEDY}")

    def take(
        self,
        costs: Sequence[float],
        uppers: Sequence[float],
        row_lowers: Sequence[float],
        row_uppers: Sequence[float],
        matrix: Matrix,
    ) -> None:
        """A programme: columns are no less than 0.

        Raises:
            ValueError: numbers that are not finite where they have to be, or that HiGHS refuses.
        """
        # sums have what any of them has, and take the least time
        if not all(isfinite(sum(each)) for each in (costs, row_uppers, matrix.values)):
            raise ValueError("the linear programme's costs, limits or coefficients are not finite")
        if isnan(sum(uppers)) or isnan(sum(row_lowers)):
            raise ValueError("the linear programme has ends that are no numbers")
        self._size = len(costs), len(row_lowers)
        lowers = [0.0] * len(costs)
        reals = [array("d", each) for each in (costs, lowers, uppers, row_lowers, row_uppers)]
        whole = [array("i", each) for each in (matrix.starts, matrix.columns)]
        values = array("d", matrix.values)
        counts, offset = (*self._size, len(values)), ctypes.c_double(0.0)
        arrays = map(_address, (*reals, *whole, values))
        passed = self._api.Highs_passLp(self._solver, *counts, _ROWWISE, _MINIMISE, offset, *arrays)
        if passed == _ERROR:
            raise ValueError("HiGHS refuses the linear programme: its numbers are too large")

    def begin_at(self, basis: Basis) -> None:
        """Of a programme of as many columns and rows.

        Raises:
            ValueError: of another one.
        """
        if self._api.Highs_setBasis(self._solver, *map(_address, basis)) == _ERROR:
            raise ValueError("HiGHS refuses the basis: it is not of this linear programme")

    def run(self) -> int:
        """Returns how it ended, as HiGHS numbers that; what failed is not optimal."""
        failed = self._api.Highs_run(self._solver) == _ERROR
        return FAILED if failed else self._api.Highs_getModelStatus(self._solver)

    @property
    def value(self) -> float:
        """Of the programme that was solved."""
        return self._api.Highs_getObjectiveValue(self._solver)

    @property
    def solution(self) -> tuple[float, ...]:
        """Its columns."""
        columns = array("d", bytes(_REAL_BYTES * self._size[0]))
        self._api.Highs_getSolution(self._solver, _address(columns), None, None, None)
        return tuple(columns)

    @property
    def basis(self) -> Basis:
        """At which it ended."""
        columns, rows = (array("i", bytes(_INT_BYTES * count)) for count in self._size)
        self._api.Highs_getBasis(self._solver, _address(columns), _address(rows))
        return Basis(columns, rows)


def _address(numbers: "array[int] | array[float]") -> ctypes.c_void_p:
    return ctypes.c_void_p(numbers.buffer_info()[0])


def extension_of(package: str) -> Path:
    """Its compiled part.

    Raises:
        MissingSolverError: it is not installed, or has none.
    """
    found = find_spec(package)
    folder = None if found is None or found.origin is None else Path(found.origin).parent
    extension = None if folder is None else next(folder.glob("_core*.so"), None)
    if extension is None:
        raise MissingSolverError(
            f"{package} is not installed, which solves plans' linear programmes; {_REMEDY}"
        )
    return extension


# as where it were imported itself: who lacks it is told at once
_EXTENSION = extension_of("highspy")


@cache
def _library() -> ctypes.CDLL:
    # what the extension depends on is looked through as well: there the interface is
    library = ctypes.CDLL(str(_EXTENSION))
    try:
        int_bytes = library.Highs_getSizeofHighsInt(None)
    except AttributeError:
        raise TandemError(
            f"{_EXTENSION} has no C interface, as that of highspy 1.15 has; {_REMEDY}"
        ) from None
    if int_bytes != _INT_BYTES:
        raise TandemError(
            f"{_EXTENSION} counts in integers of {int_bytes} bytes, not {_INT_BYTES}; {_REMEDY}"
        )
    library.Highs_create.restype = ctypes.c_void_p
    library.Highs_getObjectiveValue.restype = ctypes.c_double
    return library
