"""One batch whose KV the link and the CPU share, both busy all the time (Park & Egger, figure 18a).

All weights are streamed and all KV lies on the host: as many sequences are streamed as the link
brings, beside the weights, while the CPU attends to the others. The batch goes through a layer as a
whole, so that the CPU waits while the accelerator is before and behind its attention; or in two
halves, of which the CPU attends to one meanwhile, with layers that overlap.
"""

from dataclasses import dataclass, replace

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.job import Executed, execute
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.policies import PARK_EGGER, find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file
from tandem.planner.question import Question

_DIVIDED = replace(
    find_offline_policy(PARK_EGGER),
    name="divided",
    parts=None,
    computes=False,
    computes_layers=False,
)
_ONE_BATCH = replace(_DIVIDED, name="one batch, divided", orders=("rows",))
_SHARES = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
"""Of the sequences that the link could bring meanwhile, those that are tried: few where both
exhaust the memory."""
PUBLISHED = 0.98
"""Overlap of CPU and link, as the paper measured it."""


@dataclass(frozen=True, slots=True)
class SplitRun:
    """What came of one way through the layers."""

    name: str
    candidate: BlockCandidate
    executed: Executed


def run_splits(cell: OfflineCell, question: Question) -> tuple[SplitRun, ...]:
    """Of a cell, each with the share of which most tokens per second come, as the paper finds its
    own; empty where the link has no room beside the weights.
    """
    search = OfflineSearch(question)
    option = search.best(_ONE_BATCH)
    if option is None:
        return ()
    whole, most = option.candidate, _most_streamed(search, option.candidate)
    counts = sorted({round(most * share) for share in _SHARES} - {0})
    found: list[SplitRun] = []
    for name, batches in (("one batch", 1), ("one batch in halves", 2)):
        tried = [_divided(whole, batches, count) for count in counts]
        runs = [_run(cell, search, name, each) for each in tried if _fits(search, each)]
        if runs:
            found.append(max(runs, key=lambda run: run.executed.tokens_per_s))
    return tuple(found)


def _most_streamed(search: OfflineSearch, whole: BlockCandidate) -> int:
    """Sequences of which the link is not yet what limits a pass."""
    bound = search.times.bound
    for streamed in range(1, whole.rows):
        shared = whole.shared(0, whole.rows - streamed)
        if bound.decode_busy(shared).link_s >= bound.decode_s(shared):
            return streamed - 1
    return whole.rows - 1


def _divided(whole: BlockCandidate, batches: int, streamed: int) -> BlockCandidate:
    rows, streamed = whole.rows // batches, streamed // batches
    return replace(whole, batches=batches, streamed_rows=streamed, cpu_rows=rows - streamed)


def _fits(search: OfflineSearch, candidate: BlockCandidate) -> bool:
    return candidate.streamed_rows > 0 and search.candidates.possible(candidate, _DIVIDED)


def _run(
    cell: OfflineCell, search: OfflineSearch, name: str, candidate: BlockCandidate
) -> SplitRun:
    plan = offline_plan(search, candidate)
    if candidate.batches > 1:
        plan = replace(plan, layers_overlap=True, weights_in_parts=True)
    file = offline_plan_file(cell.model_name, search.question, plan)
    return SplitRun(name, candidate, execute(cell, file))
