"""What no candidate of a block exceeds, before any is made: sequences, batches and bits are known,
but not how many layers are streamed or left to the CPU, nor where KV lies. Nothing attends, and no
KV crosses the link; of the layers, as few come as memory makes necessary.

Of a start, it is known how many layers are streamed, and so how much KV memory has no room for:
link and CPU share that, and the layers (`levelled.py`).

Of candidates as they are made, not of what small changes lead to from there: where only MLPs are
elsewhere, those may recompute (`BlockCandidates.may_recompute`), and so exceed what is promised.
"""

from collections.abc import Iterator
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.offline.bound import BlockBound
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BlockCandidates
from tandem.planner.offline.levelled import INFINITY, Levelled, least_levelled_s
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.rates import block_rates
from tandem.planner.question import Question


class BlockPromises:
    """Of one question's blocks."""

    def __init__(self, question: Question, candidates: BlockCandidates, bound: BlockBound) -> None:
        self._q, self._lengths = question, question.lengths
        self._layers = question.model.num_layers
        self._candidates, self._bound = candidates, bound
        size = question.block_size
        self._prefix = round(question.lengths.prompt_tokens) // size * size
        self._accelerator: dict[tuple[BlockCandidate, bool], tuple[float, float]] = {}
        self._kv: dict[tuple[BlockCandidate, bool], Levelled] = {}

    def tokens_per_s(self, block: BlockCandidate, policy: OfflinePolicy) -> float:
        """Of none of the policy's candidates more; 0: there are none."""
        streamed = self._candidates.least_streamed(block, policy)
        return 0.0 if streamed is None else self._of(block, streamed, policy)

    def of_start(self, start: BlockCandidate, policy: OfflinePolicy) -> float:
        """Of none of the candidates of one of a block's starts more. Where the CPU was measured its
        times are no lines, and only layers are counted.
        """
        block = replace(start, streamed=0)
        hosted = start.rows - self._candidates.most_resident(start, policy)
        if hosted and not (policy.streams or policy.attends):
            return 0.0
        lends = self._candidates.may_lend(start, policy)
        reads_s = self._reads_s(start, hosted, lends=lends)
        if self._q.measured is not None or not hosted:
            return self._of(block, start.streamed, policy, reads_s=reads_s)
        link_s, cpu_s = self._hosted(block, policy)
        share = hosted / start.rows
        kv = Levelled(
            share * link_s if policy.streams else INFINITY,
            share * cpu_s if policy.attends else INFINITY,
        )
        both = (kv, self._shared_layers(start, policy))
        levelled_s = least_levelled_s(both)
        return self._of(block, start.streamed, policy, levelled_s=levelled_s, reads_s=reads_s)

    def _of(
        self,
        block: BlockCandidate,
        streamed: int,
        policy: OfflinePolicy,
        *,
        levelled_s: float = 0.0,
        reads_s: float = 0.0,
    ) -> float:
        """With so many layers streamed.

        Args:
            levelled_s: what link and CPU take for a pass at least. reads_s: the disk, for any.
        """
        lends = self._candidates.may_lend(block, policy)
        key = block, lends
        if key not in self._accelerator:
            self._accelerator[key] = self._prompts_s(block), self._stages_s(block, lends=lends)
        prompts_s, stages_s = self._accelerator[key]
        prefill_s = max(reads_s, prompts_s, self._loads_s(block, streamed))
        weights_s = self._weights_s(block, streamed, policy)
        pass_s = max(reads_s, levelled_s, stages_s, weights_s)
        return block_rates(self._lengths, block, prefill_s, pass_s).tokens_per_s

    def _reads_s(self, start: BlockCandidate, hosted: int, *, lends: bool) -> float:
        """Of the disk, for the fewest layers that must be there: with all KV that is on the host in
        one way.
        """
        resident = start.rows - hosted
        ways = [start.shared(resident, 0), start.shared(resident, hosted)]
        if self._candidates.recomputes.sees_all and hosted:
            ways += [replace(ways[0], recomputed_tokens=self._prefix)]
        on_disk = min(self._candidates.placed(way).on_disk for way in ways)
        stay = lends and on_disk <= STREAM_SLOTS  # beside layers that are all the CPU's
        if stay or start.streamed <= STREAM_SLOTS:
            return 0.0
        return self._bound.reads_s(start, on_disk)

    def _hosted(self, block: BlockCandidate, policy: OfflinePolicy) -> Levelled:
        """All KV of a block, brought or attended on the CPU; of a prefix that is made anew as much
        as is least for the link.
        """
        recomputes = self._candidates.may_recompute(block, policy)
        key = block, recomputes
        if key not in self._kv:
            made = {max(0, self._prefix - self._q.block_size), self._prefix} if recomputes else {0}
            comes = (replace(block.shared(0, 0), recomputed_tokens=prefix) for prefix in made | {0})
            link_s = min(self._bound.decode_busy(each).link_s for each in comes)
            cpu_s = self._bound.decode_busy(block.shared(0, block.rows)).cpu_s
            self._kv[key] = Levelled(link_s, cpu_s)
        return self._kv[key]

    def _prompts_s(self, block: BlockCandidate) -> float:
        """Of the accelerator, for all prompts."""
        resident = block.shared(block.rows, 0)
        return min(self._bound.prefill_busy(each).accelerator_s for each in self._ends(resident))

    def _stages_s(self, block: BlockCandidate, *, lends: bool) -> float:
        """Of the accelerator, for a token of each sequence, attention left out."""
        attended = block.shared(0, block.rows)
        found = [self._bound.decode_busy(each).accelerator_s for each in self._ends(attended)]
        most = self._layers - STREAM_SLOTS
        if lends and most > 0:
            lent = replace(attended, streamed=self._layers, lent=most)
            spared_s = found[0] - self._bound.decode_busy(lent).accelerator_s
            found.append(found[0] - spared_s * self._layers / most)
        return min(found)

    def _ends(self, block: BlockCandidate) -> Iterator[BlockCandidate]:
        """Between which the accelerator's work lies: its types may depend on what is streamed."""
        yield replace(block, mlps=False)
        if block.quantized == "streamed":
            yield replace(block, streamed=self._layers, mlps=False)

    def _loads_s(self, block: BlockCandidate, streamed: int) -> float:
        """Of the link, for all layers that are streamed."""
        return streamed * self._bound.load_s(block) if streamed > STREAM_SLOTS else 0.0

    def _weights_s(self, block: BlockCandidate, streamed: int, policy: OfflinePolicy) -> float:
        """Of the link, in a pass; of what may be lent, or divided, the CPU computes so much that
        both take equally long, or all but what stays in the slots.
        """
        if not self._candidates.may_lend(block, policy) or streamed <= STREAM_SLOTS:
            return self._loads_s(block, streamed)
        computed_s, brought_s = self._bound.lent_s(block)
        together_s = streamed * computed_s * brought_s / (computed_s + brought_s)
        if self._candidates.may_divide(block, policy):
            columns_s, crossing_s = self._bound.divided_s(block)
            each_s = brought_s * columns_s / (columns_s + crossing_s)
            together_s = min(together_s, streamed * each_s)
        return min(together_s, (streamed - STREAM_SLOTS) * computed_s)

    def _shared_layers(self, start: BlockCandidate, policy: OfflinePolicy) -> Levelled:
        """The link's bytes are those of all, the CPU's all but what stays in the slots, to which
        nothing comes then.
        """
        block, streamed = replace(start, streamed=0), start.streamed
        if streamed <= STREAM_SLOTS:
            return Levelled(0.0, INFINITY)
        crossing_s = streamed * self._bound.crossing_s(block)
        if not self._candidates.may_lend(start, policy):
            return Levelled(crossing_s, INFINITY)
        computed_s = (streamed - STREAM_SLOTS) * self._bound.lent_s(block)[0]
        if self._candidates.may_divide(start, policy):
            columns_s, mlp_s = self._bound.divided_s(block)
            computed_s = min(computed_s, columns_s * crossing_s / mlp_s)
        return Levelled(crossing_s, computed_s)
