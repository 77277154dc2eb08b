"""How many threads the CPU attends on in blocks of batches: as planned, if nothing contradicts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tandem.kernels.tier_kernels import ReferenceKernels, TierKernels

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool

_THE_USERS = "OMP_NUM_THREADS"


def set_threads(
    kernels: TierKernels, planned: int | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Give the kernels' pool, which nobody uses yet, as many threads as the plan says; what there
    is to say about it. Without compiled kernels, or a number in the plan, nothing changes.

    The pool has as many threads as it may: what this process is granted, or what OMP_NUM_THREADS
    says. More than that are not taken; where the user has said a number, no others.

    Args:
        kernels: of the host's tier.
    """
    if planned is None or isinstance(kernels, ReferenceKernels):
        return ()
    pool = _pool_of(kernels)
    most = pool.num_threads
    if planned == most:
        return ()
    if environment.get(_THE_USERS):
        return (
            f"the CPU attends on {most} threads, as {_THE_USERS} bounds them, not on the "
            f"{planned} of the plan; leave it unset to follow the plan",
        )
    if planned > most:
        return (
            f"the CPU attends on {most} threads, which is all that this process is granted, not "
            f"on the {planned} of the plan",
        )
    pool.resize(planned)
    return (f"the CPU attends on {planned} of {most} threads, as planned",)


def _pool_of(kernels: TierKernels) -> "NativePool":
    from tandem.kernels.compiled_kernels import CompiledKernels

    assert isinstance(kernels, CompiledKernels)
    return kernels.pool
