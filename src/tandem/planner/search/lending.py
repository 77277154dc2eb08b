"""Streamed layers that the CPU computes where no prompt is read: how many, by the bound."""

from collections.abc import Iterator

from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.prediction import Predictor
from tandem.planner.sweeps import Sweeps

_LEAST_SHARE = 0.05
"""Of sweeps without prompts, below which it makes no difference what the CPU does in them."""


class Lending:
    """Proposes for candidates that stream what the CPU could take over; memory is the same."""

    def __init__(self, sweeps: Sweeps, predictor: Predictor) -> None:
        self._sweeps, self._predictor = sweeps, predictor
        self._proposed: dict[Candidate, Candidate | None] = {}

    def of(self, candidate: Candidate) -> Iterator[Candidate]:
        """The one proposal for a candidate, if there is any."""
        if candidate not in self._proposed:
            self._proposed[candidate] = self._propose(candidate)
        proposed = self._proposed[candidate]
        if proposed is not None:
            yield proposed

    @staticmethod
    def is_possible(candidate: Candidate) -> bool:
        """Whether there may be a proposal."""
        if not candidate.streamed or candidate.on_cpu or candidate.has_cohorts:
            return False
        return candidate.elsewhere.may_be_lent > 0

    def _propose(self, candidate: Candidate) -> Candidate | None:
        """None as well where hardly any sweep reads no prompt."""
        if not self.is_possible(candidate):
            return None
        if self._predictor.decode_share(candidate) < _LEAST_SHARE:
            return None
        return self.between_prompts(candidate)

    def between_prompts(self, candidate: Candidate) -> Candidate | None:
        """So many layers that link and CPU take equally long where no prompt is read, if both are
        then faster, however few sweeps these are.

        Loads take time in proportion to the layers that are left, and the chain of a sweep grows
        with each layer on the CPU. Or all that may be lent: what is left then stays in its slots,
        and nothing is loaded.
        """
        here, streamed = candidate.elsewhere, candidate.streamed
        most = here.may_be_lent
        if not self.is_possible(candidate):
            return None
        load = self._predictor.loads.of(candidate)

        def seconds(elsewhere: Elsewhere) -> float:
            return self._sweeps.bound_s(elsewhere, load)

        here_s, chain_s = seconds(here), seconds(Elsewhere())
        unread = here._replace(on_disk=0)
        all_streamed_s = seconds(unread) if here.on_disk else here_s
        if all_streamed_s <= chain_s:
            return None
        all_lent = here.lending(most)
        all_lent_s = seconds(all_lent)
        longest_s = seconds(unread.lending(most)) if here.on_disk else all_lent_s
        link_s, each_s = all_streamed_s / streamed, (longest_s - chain_s) / most
        balanced = (all_streamed_s - chain_s) / max(link_s, link_s + each_s)
        below = max(1, int(balanced))
        around = [(seconds(there), there) for there in map(here.lending, (below, below + 1))]
        around.append((all_lent_s, all_lent))
        moved_s, moved = min(around, key=lambda found: found[0])
        return candidate.with_elsewhere(moved) if moved_s < here_s else None
