"""What no candidate of a block exceeds, before any is made: sequences, batches and bits are known,
but not how many layers are streamed or left to the CPU, nor where KV lies.

Nothing attends, and no KV crosses the link; of the layers, as few come as memory makes necessary.
"""

from collections.abc import Iterator
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.offline.bound import BlockBound
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BlockCandidates
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.rates import block_rates
from tandem.planner.question import Question


class BlockPromises:
    """Of one question's blocks."""

    def __init__(self, question: Question, candidates: BlockCandidates, bound: BlockBound) -> None:
        self._lengths, self._layers = question.lengths, question.model.num_layers
        self._candidates, self._bound = candidates, bound

    def tokens_per_s(self, block: BlockCandidate, policy: OfflinePolicy) -> float:
        """Of none of the policy's candidates more; 0: there are none."""
        streamed = self._candidates.least_streamed(block, policy)
        if streamed is None:
            return 0.0
        prefill_s = max(self._prompts_s(block), self._loads_s(block, streamed))
        lends = self._candidates.may_lend(block, policy)
        stages_s = self._stages_s(block, lends=lends)
        pass_s = max(stages_s, self._weights_s(block, streamed, lends=lends))
        return block_rates(self._lengths, block, prefill_s, pass_s).tokens_per_s

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

    def _weights_s(self, block: BlockCandidate, streamed: int, *, lends: bool) -> float:
        """Of the link, in a pass; of what may be lent, the CPU computes so much that both take
        equally long, or all but what stays in the slots.
        """
        if not lends or streamed <= STREAM_SLOTS:
            return self._loads_s(block, streamed)
        computed_s, brought_s = self._bound.lent_s(block)
        together_s = streamed * computed_s * brought_s / (computed_s + brought_s)
        return min(together_s, (streamed - STREAM_SLOTS) * computed_s)
