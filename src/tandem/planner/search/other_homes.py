"""The same requests with layers in other homes: what is best for so many at once, in step."""

import math
from collections.abc import Iterable, Iterator, Sequence

from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import Policy
from tandem.planner.prediction import Predictor
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.kinds import WORTH_MOVING
from tandem.planner.search.lending import Lending
from tandem.planner.search.moves import Moves
from tandem.planner.search.options import Options


class OtherHomes:
    """Proposes homes of layers for requests that stay where they are.

    The search weighs homes for requests out of step, of which nearly every sweep reads a prompt.
    Of those in step few do, so that other layers may be lent, and how many requests there are is
    given by the waves, so that other numbers of layers just fit.
    """

    def __init__(
        self,
        candidates: Candidates,
        moves: Moves,
        lending: Lending,
        predictor: Predictor,
        options: Options,
        footprint: Footprint,
    ) -> None:
        self._footprint = footprint
        self._candidates, self._moves, self._lending = candidates, moves, lending
        self._predictor, self._options = predictor, options
        self._every: Sequence[Elsewhere] | None = None

    def of(
        self, candidate: Candidate, others: Iterable[Candidate], policy: Policy
    ) -> list[Candidate]:
        """Those that promise a shorter job, the most promising first; none where all layers are
        resident, of cohorts, and of requests that lie in both tiers.

        Args:
            others: with other numbers of requests, whose layers may have other homes as well.
        """
        here = candidate.elsewhere
        if not here.not_resident or candidate.has_cohorts or candidate.device_share:
            return []
        least_s = self._job_s(candidate) / WORTH_MOVING
        found: dict[Candidate, float] = {}
        for start in (candidate, *others):
            for moved in self._moved(start):
                if moved in found or not self._options.possible(moved, policy):
                    continue
                job_s = self._job_s(moved)
                if job_s < least_s:
                    found[moved] = job_s
        return sorted(found, key=lambda moved: found[moved])

    def _moved(self, candidate: Candidate) -> Iterator[Candidate]:
        """A few layers elsewhere, then any; each also lent."""
        if self._every is None:
            self._every = list(self._candidates.elsewheres())
        for elsewhere in (*self._moves.elsewheres(candidate.elsewhere), *self._every):
            moved = candidate.with_elsewhere(elsewhere)
            yield moved
            lent = self._lending.between_prompts(moved)
            if lent is not None:
                yield lent

    def _job_s(self, candidate: Candidate) -> float:
        """Less than which it hardly takes if each wave reads all prompts in full steps, and then
        decodes; of waves that outgrow memory together, a part runs once more.
        """
        predictor, lengths = self._predictor, self._predictor.lengths
        waves = math.ceil(lengths.requests / predictor.places(candidate))
        waves = max(waves, lengths.requests / max(1, self._held_at_ends(candidate)))
        room = predictor.pace.room(candidate)
        reading = math.ceil(candidate.rows * lengths.prompt_tokens / room)
        reading_s = reading * predictor.least_s(candidate, room)
        return waves * (reading_s + lengths.later_tokens * predictor.least_s(candidate))

    def _held_at_ends(self, candidate: Candidate) -> int:
        """Requests that have room when all of them are near their ends."""
        footprint = self._footprint
        tokens = math.ceil(self._predictor.lengths.total_tokens)
        each = footprint.page.blocks_for_tokens(tokens)
        device, host = footprint.device_blocks(candidate), footprint.host_blocks(candidate)
        return min(candidate.device_rows, device // each) + min(candidate.host_rows, host // each)
