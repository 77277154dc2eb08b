"""An engine of blocks takes its plan's number of threads, and says when it may not."""

import pytest
import torch

from tandem.engine.sizing.plan_threads import set_threads
from tandem.kernels import native
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import ReferenceKernels, TierKernels

SHAPE = PageShape(2, 16, 64)


def kernels(threads: int) -> TierKernels:
    if not native.available():
        pytest.skip(native.unavailable_message())
    from tandem.kernels.compiled_kernels import CompiledKernels
    from tandem.kernels.native_pool import NativePool

    return CompiledKernels(NativePool(threads), 4, SHAPE, 0.125)


def test_the_plan_s_number_is_taken() -> None:
    made = kernels(3)
    assert set_threads(made, 2, {}) == ("the CPU attends on 2 of 3 threads, as planned",)
    assert "on 2 threads" in made.name


@pytest.mark.parametrize("planned", [None, 3])
def test_nothing_is_said_where_nothing_changes(planned: int | None) -> None:
    made = kernels(3)
    assert set_threads(made, planned, {"OMP_NUM_THREADS": "3"}) == ()
    assert "on 3 threads" in made.name


def test_no_more_than_the_process_is_granted() -> None:
    made = kernels(2)
    (said,) = set_threads(made, 4, {})
    assert said.startswith(
        "the CPU attends on 2 threads, which is all that this process is granted"
    )
    assert "on 2 threads" in made.name


@pytest.mark.parametrize("planned", [1, 4])
def test_the_user_s_number_wins(planned: int) -> None:
    made = kernels(2)
    (said,) = set_threads(made, planned, {"OMP_NUM_THREADS": "2"})
    assert said == (
        f"the CPU attends on 2 threads, as OMP_NUM_THREADS bounds them, not on the {planned} of "
        "the plan; leave it unset to follow the plan"
    )
    assert "on 2 threads" in made.name


def test_torch_s_kernels_have_no_pool_to_set() -> None:
    assert set_threads(ReferenceKernels(torch.device("cpu"), SHAPE, 0.125), 2, {}) == ()
