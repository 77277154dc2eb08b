"""Candidates by kind: those of one kind fall about equally short of their bounds."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import neg
from typing import NamedTuple

from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.elsewhere import CpuHome
from tandem.planner.glance import Glances
from tandem.planner.option import Option
from tandem.planner.policies import WITHOUT_PASSES, Policy, strategy_alone
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.lending import Lending
from tandem.planner.search.pile import FirstLook, Look, Pile
from tandem.planner.search.row_limits import RowLimits
from tandem.planner.sweeps import Sweeps

WORTH_MOVING = 1.0005
_HOPELESS = 0.6
# What all policies choose from, in parts that are enumerated when a policy asks for them: passes
# are many candidates, and most policies have none.
_PARTS = (WITHOUT_PASSES, strategy_alone("asymmetric"))

Kind = tuple[Strategy, int, bool, CpuHome | None, bool, bool, bool, bool]


class Estimate(NamedTuple):
    """A candidate, or what it lends, and tokens per second that this cannot exceed."""

    candidate: Candidate
    kind: Kind
    most_per_s: float
    lends: bool


class Estimates(NamedTuple):
    """Of all candidates of a part.

    Attributes:
        every: in the order in which they are listed.
        most_per_s: what each cannot exceed, descending; places: in `every`, likewise.
    """

    every: list[Estimate]
    most_per_s: list[float]
    places: list[int]

    @staticmethod
    def of(every: list[Estimate]) -> "Estimates":
        """From those listed."""
        places = sorted(range(len(every)), key=lambda place: -every[place].most_per_s)
        return Estimates(every, [every[place].most_per_s for place in places], places)

    def above(self, least: float) -> list[Estimate]:
        """Those that may exceed so many tokens per second: narrow policies, of which there are
        many, ask for few.
        """
        count = bisect_left(self.most_per_s, -least, key=neg)
        if count == len(self.every):
            return self.every
        return [self.every[place] for place in sorted(self.places[:count])]


class KindPile(Pile):
    """With those that were tried and are in time."""

    def __init__(self, first: FirstLook, looks: Sequence[Look], reached: float) -> None:
        super().__init__(first, looks, reached)
        self.options: list[Option] = []

    @property
    def best(self) -> Option | None:
        """Of those tried."""
        return max(self.options, key=lambda option: option.tokens_per_s, default=None)


class Kinds:
    """All candidates of a question, piled up by kind, for each policy anew.

    Args:
        like: of a machine much like this one, whose kinds fell as short of their bounds.
        hopeless: kinds that are left out.
    """

    def __init__(
        self,
        question: Question,
        candidates: Candidates,
        sweeps: Sweeps,
        lending: Lending,
        glances: Glances,
        predictor: Predictor,
        like: "Kinds | None",
        hopeless: frozenset[Kind],
    ) -> None:
        self._q, self._candidates = question, candidates
        self._layers: int = question.movable_layers  # thousands are told by them
        self._sweeps, self._lending, self._predictor = sweeps, lending, predictor
        self._glances = glances
        reached: dict[Kind, float] = {} if like is None else like.reached()
        self._reached = reached
        self._hopeless = hopeless
        same_room = like is not None and question.holds_as_much_as(like._q)
        self._plain: dict[str, list[Candidate]] = like._plain if like and same_room else {}
        self._estimated: dict[str, tuple[float, Estimates]] = {}
        self._piles: dict[str, tuple[float, dict[Kind, KindPile]]] = {}

    def of(self, candidate: Candidate) -> Kind:
        """By strategy, all, some or no weights streamed, whether the KV is all on the host, what
        the CPU computes, whether some layers are read from disk, whether MLPs alone are streamed,
        whether mixtures are elsewhere in part, and where prompts are read.
        """
        streamed, layers = candidate.streamed, self._layers
        share = 0 if streamed == 0 else 2 if streamed >= layers - 1 else 1
        how = candidate.how if candidate.on_cpu else None
        reads, split = candidate.on_disk > 0, candidate.experts > 0
        all_hosted = candidate.device_rows == 0
        mlps, here = candidate.mlps, candidate.reads_here
        return candidate.strategy, share, all_hosted, how, reads, mlps, split, here

    def piles(self, policy: Policy, least: float = 0.0) -> dict[Kind, KindPile]:
        """Of all that a policy allows.

        Args:
            least: tokens per second; what is known to promise less may be left out. If less than
                before, all is there anew.
        """
        known = self._piles.get(policy.name)
        if known is None or known[0] > least:
            known = self._piles[policy.name] = least, self._piled(policy, least)
        return known[1]

    def _piled(self, policy: Policy, least: float) -> dict[Kind, KindPile]:
        piles: dict[Kind, KindPile] = {}
        layers, lent = self._layers, "host" in policy.homes
        looks = self._predictor.rough_bound, self._bound_of
        for part in _PARTS:
            if set(part.strategies).isdisjoint(policy.strategies):
                continue
            for candidate, kind, most_per_s, lends in self._enumerated(part, least):
                if policy.allows(candidate, layers) and (lent or not lends):
                    pile = piles.get(kind)
                    if pile is None:
                        reached = self._reached.get(kind, 0.0)
                        pile = piles[kind] = KindPile(self._first_look, looks, reached)
                    pile.add(candidate, most_per_s, lends)
        return piles

    def forget(self, policy: Policy) -> None:
        """What was taken from a policy's piles is to be there again."""
        self._piles.pop(policy.name, None)

    def reached(self) -> dict[Kind, float]:
        """Of each kind that was tried, the most of its bound that it has reached."""
        return {kind: pile.reached for kind, pile in self._all_piles() if pile.reached}

    def hopeless(self, best_per_s: float) -> frozenset[Kind]:
        """Kinds that promise so much less than the best option that no small change helps them."""
        least, reached = _HOPELESS * best_per_s, dict[Kind, bool]()
        for kind, pile in self._all_piles():
            if not reached.get(kind):
                found = pile.reaches(least)
                if found is not None:
                    reached[kind] = found
        return frozenset(kind for kind, found in reached.items() if not found)

    def _all_piles(self) -> list[tuple[Kind, KindPile]]:
        return [entry for _, piles in self._piles.values() for entry in piles.items()]

    def _enumerated(self, part: Policy, least: float) -> list[Estimate]:
        """All candidates of a part, with tokens per second that they cannot exceed, if that may be
        more than `least`.
        """
        known = self._estimated.get(part.name)
        if known is not None and known[0] <= least:
            return known[1].above(least)
        estimated = [
            estimate
            for plain in self._plain_of(part, least)
            if (kind := self.of(plain)) not in self._hopeless
            for estimate in self._at_a_glance(plain, kind)
            if estimate.most_per_s > least
        ]
        self._estimated[part.name] = least, Estimates.of(estimated)
        return estimated

    def _at_a_glance(self, plain: Candidate, kind: Kind) -> Iterator[Estimate]:
        lends = self._lending.is_possible(plain)
        most_per_s, lent_per_s = self._glances.of(plain, lends=lends)
        yield Estimate(plain, kind, most_per_s, lends=False)
        if lends:
            lent: Kind = (*kind[:3], "host", *kind[4:])
            yield Estimate(plain, lent, lent_per_s, lends=True)

    def _first_look(self, plain: Candidate, lends: bool) -> tuple[Candidate, float] | None:
        """The candidate, or what it lends, if anything, with its first bound; None as well if it
        surely breaks the bound on time per token.
        """
        candidate = next(self._lending.of(plain), None) if lends else plain
        if candidate is None or self._predictor.is_surely_late(candidate):
            return None
        return candidate, self._predictor.first_bound(candidate)

    def _plain_of(self, part: Policy, least: float) -> Iterable[Candidate]:
        """Those of a part that may reach `least` with their rows."""
        known = self._plain.get(part.name)
        if not least and self._q.tpot_bound_s is None:
            # nothing is left out, which a machine with other rates could have in time
            if known is None:
                known = self._plain[part.name] = list(self._candidates.of(part))
            return known
        limits = RowLimits(self._q, self._sweeps, least)
        if known is not None:
            return filter(limits.allow, known)
        return self._candidates.of(part, limits)

    def _bound_of(self, candidate: Candidate) -> float | None:
        """None if it breaks the bound on time per token, or lends layers for nothing."""
        rates = self._predictor.bound(candidate)
        if not self._q.allows(rates.worst_tpot_s):
            return None
        if candidate.elsewhere.lent:
            streamed = candidate.elsewhere.lending(0)
            plain = self._predictor.bound(candidate.with_elsewhere(streamed))
            if rates.job_tokens_per_s <= plain.job_tokens_per_s * WORTH_MOVING:
                return None
        return rates.job_tokens_per_s


def most_promising(piles: Iterable[KindPile], least: float) -> KindPile | None:
    """The pile that promises most, if that is more than `least`."""
    found: KindPile | None = None
    for pile in piles:
        promise = pile.promise(least)
        if promise > least:
            found, least = pile, promise
    return found
