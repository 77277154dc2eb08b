"""Threads for the compute task and the five loads and stores (LM-Offload, algorithm 3).

For reference: no plan is made by it. Here the copies are the device's, which need no threads, and
the CPU's part of a pass is one task; `planner/offline/threads.py` takes its number of threads from
what a profile measured of each. Of a host that was not measured nothing tells numbers of threads
apart: data sheets give the rate of all its cores, and by that fewer are only slower.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A load or store.

    Attributes:
        thread_bytes_per_s: what one thread moves; all together no more than `link_bytes_per_s`.
    """

    size_bytes: float
    thread_bytes_per_s: float
    link_bytes_per_s: float

    def time_s(self, threads: int) -> float:
        """Time on so many threads."""
        return self.size_bytes / min(threads * self.thread_bytes_per_s, self.link_bytes_per_s)


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """Who gets how many threads.

    Attributes:
        operators: of the compute task that run at once.
        threads_per_operator: each of them.
        copies: threads per load or store.
        step_s: the slowest task.
    """

    operators: int
    threads_per_operator: int
    copies: Mapping[str, int]
    step_s: float

    @property
    def threads(self) -> int:
        """All of them."""
        return self.operators * self.threads_per_operator + sum(self.copies.values())


def plan_threads(
    operators: int,
    max_threads: int,
    compute_s: Mapping[int, float],
    copies: Mapping[str, CopyTask],
) -> ThreadPlan | None:
    """The fastest division; the fewest threads among equals. None if there are too few threads.

    Every number of threads per operator in `compute_s` is tried that leaves at least one thread to
    each copy; those get what is left in proportion to their bytes.

    Args:
        operators: at once in the compute task; see `maximum_concurrency`.
        max_threads: without the one that launches work on the accelerator.
        compute_s: time of the compute task by threads per operator, measured while the link works.
    """
    plans: list[ThreadPlan] = []
    for threads, time_s in sorted(compute_s.items()):
        free = max_threads - operators * threads
        if free < len(copies):
            continue
        shares = share_threads(free, {name: task.size_bytes for name, task in copies.items()})
        slowest_s = max((task.time_s(shares[name]) for name, task in copies.items()), default=0.0)
        plans.append(ThreadPlan(operators, threads, shares, max(time_s, slowest_s)))
    return min(plans, key=lambda plan: plan.step_s, default=None)


def share_threads(threads: int, sizes: Mapping[str, float]) -> dict[str, int]:
    """At least one each, the rest in proportion to the sizes, whole by largest remainders.

    Raises:
        ValueError: fewer threads than shares.
    """
    if threads < len(sizes):
        raise ValueError(f"{threads} threads for {len(sizes)} tasks")
    total = sum(sizes.values())
    spare = threads - len(sizes)
    if not total:
        return dict.fromkeys(sizes, 1)
    ideal = {name: spare * size / total for name, size in sizes.items()}
    shares = {name: 1 + int(part) for name, part in ideal.items()}
    left = threads - sum(shares.values())
    by_remainder = sorted(ideal, key=lambda name: int(ideal[name]) - ideal[name])
    for name in by_remainder[:left]:
        shares[name] += 1
    return shares
