"""The same requests with layers in other homes: what is best for so many at once, in step."""

import math
from collections.abc import Iterator, Sequence

from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
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
    ) -> None:
        self._candidates, self._moves, self._lending = candidates, moves, lending
        self._predictor, self._options = predictor, options
        self._every: Sequence[Elsewhere] | None = None

    def of(self, candidate: Candidate, policy: Policy) -> list[Candidate]:
        """Those that promise to end a wave sooner, the most promising first; none where all layers
        are resident, of cohorts, and of requests that lie in both tiers.
        """
        here = candidate.elsewhere
        if not here.not_resident or candidate.has_cohorts or candidate.device_share:
            return []
        least_s = self._wave_s(candidate) / WORTH_MOVING
        found: dict[Candidate, float] = {}
        for moved in self._moved(candidate):
            if moved in found or not self._options.possible(moved, policy):
                continue
            wave_s = self._wave_s(moved)
            if wave_s < least_s:
                found[moved] = wave_s
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

    def _wave_s(self, candidate: Candidate) -> float:
        """Less than which it hardly takes to read all prompts in full steps, and then to decode."""
        predictor, lengths = self._predictor, self._predictor.lengths
        room = predictor.pace.room(candidate)
        reading = math.ceil(candidate.rows * lengths.prompt_tokens / room)
        reading_s = reading * predictor.least_s(candidate, room)
        return reading_s + lengths.later_tokens * predictor.least_s(candidate)
