"""Small changes of an offline candidate."""

from collections.abc import Iterator
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BATCHES, BlockCandidates, column_step, lent_step
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.question import Question

_PART = 16  # of the sequences, moved at once; then one
_SIZES = (0.93, 1.08)
_MORE_STREAMED = (-1, 1, -2, 2)


class BlockMoves:
    """Of one question; what does not fit is left out."""

    def __init__(self, question: Question, candidates: BlockCandidates, block_size: int) -> None:
        self._q, self._candidates, self._block_size = question, candidates, block_size
        self._tile_rows: int = question.tile_rows

    def of(self, candidate: BlockCandidate, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """Each of them possible, none the same."""
        seen = {candidate}
        for found in self._moved(candidate, policy):
            moved = self._candidates.placed(found)
            if moved not in seen and self._candidates.possible(moved, policy):
                seen.add(moved)
                yield moved

    def _moved(self, c: BlockCandidate, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        for rows in {max(1, c.rows // _PART), 1}:
            for more in (rows, -rows):
                yield from _valid(c, 0, more)
                yield from _valid(c, more, 0)
                yield from _valid(c, more, -more)
        for more in _MORE_STREAMED:
            streamed = c.streamed + more
            if 0 <= streamed <= self._q.model.num_layers:
                lent = c.lent + more if c.lent else 0
                yield from self._filled(_lending(c, lent, streamed), policy)
        step = lent_step(self._q.model.num_layers)
        for more in (-step, step) if (c.mlps or c.lent) and not c.columns else ():
            yield _lending(c, c.lent + more, c.streamed)
        columns = column_step(self._q.model.intermediate_size)
        for more in (-columns, columns) if c.columns else ():
            yield replace(c, columns=max(0, c.columns + more))
        for tokens in (
            c.recomputed_tokens - self._block_size,
            c.recomputed_tokens + self._block_size,
        ):
            may = c.streamed_rows and not c.attention_maps
            if may and 0 <= tokens <= self._q.lengths.prompt_tokens:
                yield replace(c, recomputed_tokens=tokens)
        if c.mlps and not c.recomputed_tokens and policy.recomputes:
            for tokens in self._candidates.recomputes.of(c):
                yield replace(c, recomputed_tokens=tokens)
        for factor in _SIZES:
            yield from self._scaled(c, max(1, round(c.rows * factor)), c.batches, policy)
        if self._tile_rows > 1:
            last = c.rows // self._tile_rows * self._tile_rows
            for rows in {last, last + self._tile_rows} - {0, c.rows}:
                yield from self._scaled(c, rows, c.batches, policy)
        place = BATCHES.index(c.batches)
        for batches in (*BATCHES[max(0, place - 1) : place], *BATCHES[place + 1 : place + 2]):
            rows = -(-c.block_rows // batches)
            yield from self._scaled(c, rows, batches, policy)

    def _scaled(
        self, c: BlockCandidate, rows: int, batches: int, policy: OfflinePolicy
    ) -> Iterator[BlockCandidate]:
        """Blocks of another size with the same shares, and no larger than the job."""
        if rows * batches >= self._q.lengths.requests + batches:
            return
        cpu = round(c.cpu_rows * rows / c.rows)
        resident = min(rows - cpu, round(c.resident_rows * rows / c.rows))
        changed = replace(
            c,
            batches=batches,
            resident_rows=resident,
            streamed_rows=rows - cpu - resident,
            cpu_rows=cpu,
        )
        if changed.streamed_rows or not c.recomputed_tokens:
            yield changed
            yield from self._filled(changed, policy)

    def cut(self, c: BlockCandidate, policy: OfflinePolicy) -> BlockCandidate | None:
        """With attention's maps of all that is streamed on the CPU, where it has some of that, and
        as many columns of MLPs as level it and the link; None if it cannot be.
        """
        some = (c.columns or c.lent) and not (c.mlps or c.recomputed_tokens)
        if not (some and policy.cuts and self._candidates.may_divide(c, policy)):
            return None
        found = self._candidates.divided(replace(c, lent=0, attention_maps=True))
        possible = found is not None and self._candidates.possible(found, policy)
        return found if possible else None

    def apart(self, c: BlockCandidate, policy: OfflinePolicy) -> BlockCandidate | None:
        """What recomputes prefixes, with only MLPs elsewhere, of as few layers as make room; None
        if it cannot be. Of blocks that recompute nothing this is a start of its own.
        """
        if not c.recomputed_tokens or c.mlps or not self._candidates.may_part(c, policy):
            return None
        parted = replace(c, mlps=True)
        streamed = self._candidates.fewest_streamed(parted)
        if streamed is None or streamed <= STREAM_SLOTS:
            return None
        found = self._candidates.placed(replace(parted, streamed=streamed))
        return found if self._candidates.possible(found, policy) else None

    def _filled(self, c: BlockCandidate, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """As much KV on the accelerator as it holds, the others' shares as they were."""
        yield c
        resident = self._candidates.most_resident(c, policy)
        hosted = c.rows - resident
        cpu = round(hosted * c.cpu_rows / c.host_rows) if c.host_rows else 0
        yield replace(c.shared(resident, cpu), recomputed_tokens=0)
        if c.recomputed_tokens and hosted > cpu:
            yield replace(c.shared(resident, cpu), recomputed_tokens=c.recomputed_tokens)


def _lending(c: BlockCandidate, lent: int, streamed: int) -> BlockCandidate:
    """So many layers streamed, and layers or MLPs left to the CPU, or as near to it as can be."""
    most = max(0, streamed - max(STREAM_SLOTS, c.on_disk))
    return replace(c, streamed=streamed, lent=min(max(lent, 0), most))


def _valid(c: BlockCandidate, resident: int, cpu: int) -> Iterator[BlockCandidate]:
    """So many sequences more on the accelerator and on the CPU, fewer streamed."""
    streamed = c.streamed_rows - resident - cpu
    if min(c.resident_rows + resident, c.cpu_rows + cpu, streamed) < 0:
        return
    yield replace(
        c,
        resident_rows=c.resident_rows + resident,
        streamed_rows=streamed,
        cpu_rows=c.cpu_rows + cpu,
        recomputed_tokens=c.recomputed_tokens if streamed else 0,
    )
