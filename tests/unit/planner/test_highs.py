"""The solver, called as a C library, against `highspy`, which calls it with numpy's arrays."""

import os
import random
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path

import highspy
import numpy as np
import pytest

from tandem.planner.relaxation.highs import Highs, extension_of
from tandem.planner.relaxation.programme import INFINITY, Optimum, Programme
from tandem.planner.relaxation.solver import Solver
from tandem.spec.errors import TandemError

_WITHOUT_NUMPY = """
import sys
from tandem.planner.relaxation.programme import Programme
from tandem.planner.relaxation.solver import Solver
from tandem.spec.errors import TandemError
programme = Programme()
programme.at_most([(programme.column(cost=1.0), -1.0)], -2.0)
found = Solver().minimise(programme)
sys.exit(found is None or abs(found.value - 2.0) > 1e-9 or "numpy" in sys.modules)
"""


def random_programme(seed: int) -> Programme:
    """Small, often with several optima, with columns that a row names twice or cancels, and
    sometimes with rows that contradict each other.
    """
    rng = random.Random(seed)
    made = Programme()
    columns = [
        made.column(rng.choice([0.0, 1.0, rng.random()]), rng.choice([1.0, 3.0, INFINITY]))
        for _ in range(rng.randint(1, 6))
    ]
    for _ in range(rng.randint(1, 7)):
        entries = [
            (rng.choice(columns), rng.choice([-1.0, 1.0, 0.0, rng.uniform(-9, 9)]))
            for _ in range(rng.randint(0, 8))
        ]
        if rng.random() < 0.2:
            made.equal(entries, rng.uniform(-1, 2))
        else:
            made.at_most(entries, rng.uniform(-2, 3))
    return made


def by_highspy(programme: Programme) -> float | None:
    """The least value, by another way to the same library; None: rows contradict each other, or
    nothing is least.
    """
    solver, size = highspy.Highs(), programme.size
    solver.setOptionValue("output_flag", False)
    dense = np.zeros(size)
    for number, (entries, _, _) in enumerate(programme.rows):
        for column, factor in entries:
            dense[number, column] += factor
    scales = np.abs(dense).max(axis=1)
    scales[scales == 0] = 1
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = size
    model.col_cost_, model.col_upper_ = np.array(programme.columns).T.copy()
    model.col_lower_ = np.zeros(size[1])
    limits = np.array([limit for _, limit, _ in programme.rows]) / scales
    equal = [is_equality for _, _, is_equality in programme.rows]
    model.row_upper_ = limits
    model.row_lower_ = np.where(equal, limits, -INFINITY)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.arange(size[0] + 1, dtype=np.int32) * size[1]
    model.a_matrix_.index_ = np.tile(np.arange(size[1], dtype=np.int32), size[0])
    model.a_matrix_.value_ = (dense / scales[:, None]).ravel()
    solver.passModel(model)
    solver.run()
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value if optimal else None


def holds(programme: Programme, found: Optimum) -> bool:
    """Whether its columns keep to all rows, and cost what it says."""
    values = found.columns
    pairs = zip(values, programme.columns, strict=True)
    inside = all(-1e-7 <= value <= upper + 1e-7 for value, (_, upper) in pairs)
    costs = sum(v * cost for v, (cost, _) in zip(values, programme.columns, strict=True))
    for entries, limit, is_equality in programme.rows:
        over = sum(factor * values[column] for column, factor in entries) - limit
        inside = inside and over <= 1e-7 and (not is_equality or over >= -1e-7)
    return inside and abs(costs - found.value) <= 1e-7


def test_optima_are_those_of_its_python_package() -> None:
    solver, known = Solver(), list[bool]()
    for seed in range(200):
        programme = random_programme(seed)
        expected, found = by_highspy(programme), solver.minimise(programme)
        known.append(expected is not None)
        assert (found is None) == (expected is None), seed
        if found is not None:
            assert found.value == pytest.approx(expected, abs=1e-7), seed
            assert holds(programme, found), seed
    assert 20 < sum(known) < 180  # both occur


def test_what_begins_at_the_optimum_ends_there() -> None:
    solver = Solver()
    for seed in range(40):
        programme = random_programme(seed)
        found = solver.minimise(programme)
        if found is not None:
            again = solver.minimise(programme, found.basis)
            assert again is not None
            assert again.columns == pytest.approx(found.columns, abs=1e-7)


def test_programmes_are_solved_without_numpy() -> None:
    """Which takes longer to import than a plan's programmes take to solve."""
    subprocess.run([sys.executable, "-c", _WITHOUT_NUMPY], check=True, timeout=100)


@pytest.mark.parametrize("package", ["no_such_package", "json"])
def test_a_package_that_is_not_there_is_named(package: str) -> None:
    with pytest.raises(
        TandemError, match=f"{package} is not installed.*; pip install 'highspy>=1.15'"
    ):
        extension_of(package)


NAN = float("nan")


def one_row(
    cost: float = 1.0, factor: float = -1.0, limit: float = -2.0, upper: float = INFINITY
) -> Programme:
    made = Programme()
    made.at_most([(made.column(cost, upper), factor), (made.column(), 1.0)], limit)
    return made


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cost": NAN}, "costs, limits or coefficients are not finite"),
        ({"factor": NAN}, "costs, limits or coefficients are not finite"),
        ({"limit": NAN}, "costs, limits or coefficients are not finite"),
        ({"limit": INFINITY}, "costs, limits or coefficients are not finite"),
        ({"upper": NAN}, "ends that are no numbers"),
        ({"limit": -1e300}, "HiGHS refuses the linear programme"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(wrong: dict[str, float], message: str) -> None:
    solver = Solver()
    with pytest.raises(ValueError, match=message):
        solver.minimise(one_row(**wrong))
    found = solver.minimise(one_row())
    assert found is not None
    assert found.value == pytest.approx(2.0)


def test_a_basis_that_is_none_is_refused() -> None:
    solver = Solver()
    found = solver.minimise(one_row())
    assert found is not None
    of_no_status = found.basis._replace(rows=array("i", [9]))
    with pytest.raises(ValueError, match="HiGHS refuses the basis"):
        solver.minimise(one_row(), of_no_status)


@pytest.mark.parametrize(
    "set_option",
    [
        lambda solver: solver.set_flag("no_such", True),
        lambda solver: solver.set_number("no_such", 1),
        lambda solver: solver.set_real("no_such", 1.0),
        lambda solver: solver.set_word("no_such", "on"),
    ],
    ids=["flag", "number", "real", "word"],
)
def test_an_option_that_is_not_there_is_refused(set_option: Callable[[Highs], None]) -> None:
    """Of a later HiGHS that has renamed one, say: it would be what it is by default."""
    with pytest.raises(TandemError, match=r"does not take its option no_such; pip install 'highs"):
        set_option(Highs())


def test_a_plan_without_the_package_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "highspy").mkdir()
    (tmp_path / "highspy" / "__init__.py").touch()
    path = os.pathsep.join([str(tmp_path), *sys.path])
    plan = "plan", "opt-1.3b", "--accelerator", "t4", "--requests", "2"
    ran = subprocess.run(
        [sys.executable, "-m", "tandem", *plan],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "highspy is not installed" in ran.stderr
    assert "pip install 'highspy>=1.15'" in ran.stderr
