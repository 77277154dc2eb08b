"""How many operators of a task can run at once (LM-Offload, section 4.2).

The paper takes the widest level of Kahn's topological sort. That is a lower bound only: operators
of different levels may be independent too. The largest antichain is exact.

For reference: no plan is made by it. The CPU's operations are compiled loops that all threads
share, one after the other, so that none has to be bundled and several at once gain nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Successors = Mapping[str, tuple[str, ...]]


def maximum_concurrency(graph: Successors) -> int:
    """Size of the largest set of operators none of which depends on another (Dilworth).

    Args:
        graph: who must wait for whom; every operator is a key.

    Raises:
        ValueError: the graph has a cycle, or names an operator that is not a key.
    """
    reach = _reachable(graph)
    matched: dict[str, str] = {}

    def augment(operator: str, seen: set[str]) -> bool:
        for later in reach[operator] - seen:
            seen.add(later)
            if later not in matched or augment(matched[later], seen):
                matched[later] = operator
                return True
        return False

    chains_joined = sum(augment(operator, set()) for operator in graph)
    return len(graph) - chains_joined


def _reachable(graph: Successors) -> dict[str, set[str]]:
    reach: dict[str, set[str]] = {}
    for operator in reversed(topological_order(graph)):
        after = graph[operator]
        reach[operator] = set(after).union(*(reach[later] for later in after))
    return reach


def topological_order(graph: Successors) -> list[str]:
    """Every operator before those that wait for it.

    Raises:
        ValueError: as in `maximum_concurrency`.
    """
    waiting = dict.fromkeys(graph, 0)
    for after in graph.values():
        for later in after:
            if later not in waiting:
                raise ValueError(f"operator {later} is not in the graph")
            waiting[later] += 1
    ready = [operator for operator, count in waiting.items() if not count]
    for operator in ready:
        for later in graph[operator]:
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    if len(ready) < len(graph):
        raise ValueError("the operators wait for each other in a circle")
    return ready


@dataclass(frozen=True, slots=True)
class TimedGraph:
    """Operators with their times."""

    successors: Successors
    times_s: Mapping[str, float]


def bundle_small(graph: TimedGraph, least_s: float) -> TimedGraph:
    """Join chains of operators of which one is shorter than `least_s`; concurrency is not touched.

    An operator joins the one before it if neither has another neighbour on that side.
    """
    successors, times = dict(graph.successors), dict(graph.times_s)
    for operator in topological_order(graph.successors):
        if operator not in successors:
            continue
        while len(successors[operator]) == 1:
            (later,) = successors[operator]
            others = [name for name, after in successors.items() if later in after]
            if len(others) > 1 or min(times[operator], times[later]) >= least_s:
                break
            successors[operator] = successors.pop(later)
            times[operator] += times.pop(later)
    return TimedGraph(successors, times)
