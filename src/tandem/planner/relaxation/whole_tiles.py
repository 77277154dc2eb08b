"""What no plan can exceed, where linear maps compute rows in whole tiles.

A programme prices rows by lines, below the stairs of tiles: rows of an execution vary, and the mean
of two sweeps may lie below the stair of their mean rows. But tokens per second of any mixture are
no more than those of its best sweep. So of plans whose cohorts share the main lane's stages, each
sweep that an execution might have is looked at, of as many rows as the plan's or fewer.

**Proof.** Of each token that is decoded, each of `L` layers computes a row: in the main lane, or in
a stage that its cohort shares, a layer at a time, alone or with another cohort that stands there.
Let such a row be worth `1 / L`, so that a token is worth 1; what prompts take is left out. Subtract
a toll whenever a cohort shares a stage, and give each sweep as many tolls as that happens per sweep
at most: in sum over all sweeps they cancel, or more is given. So if no sweep is worth more than `R`
times its seconds on the accelerator, no more than `R` tokens are decoded per second, whatever the
toll; that is sought which promises least.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.candidate import COHORTS, candidate_of
from tandem.planner.demand import Demands
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.policies import Policy
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.way import Way

_HERE: frozenset[LayerHome] = frozenset(("resident", "streamed", "streamed-mlp"))
_STAGES = ((OpKind.STAGE, Part.PRE), (OpKind.MERGE, Part.NONE), (OpKind.STAGE, Part.POST))
_NARROWED = 12
"""Times that the range of tolls is: any of them gives a bound."""
_GOLDEN = 0.381966
_ROUNDED_UP = 1 + 1e-9


def tiled_ceiling(question: Question, footprint: Footprint, policy: Policy) -> float:
    """Tokens per second that no plan of a policy exceeds, nor its execution: of each range of rows
    the programme's, or the accelerator's in whole tiles if that is less.
    """
    tiles = WholeTiles(question, footprint) if knows_tiles(question) else None
    most = 0.0
    for bounded in Ceilings(question, footprint, policy).leaves():
        if bounded.tokens_per_s <= most:
            break
        within = inf if tiles is None else tiles.tokens_per_s(bounded.way, bounded.rows, most)
        most = max(most, min(bounded.tokens_per_s, within))
    return most


def knows_tiles(question: Question) -> bool:
    """Whether layers are alike and compute rows in tiles, at known rates, and prompts are hardly
    more than rows: what longer ones take is most of what there is to count.
    """
    model, precision = question.model, question.precision
    alike = model.experts is None and len(set(model.layer_windows)) == 1
    known = question.measured_card is None and not precision.quantized and question.tile_rows > 1
    rows = question.objective == "throughput" and question.lengths.prompts_are_rows
    return alike and known and rows


class Places(NamedTuple):
    """The most rows that decode in a sweep: in the main lane, and of a cohort."""

    main: int
    cohort: int

    def holds(self, other: "Places") -> bool:
        """Whether all sweeps of the others' are sweeps of these."""
        return self.main >= other.main and self.cohort >= other.cohort


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """Seconds on the accelerator, by numbers of rows from 0 on.

    Attributes:
        layers: how many.
        layer_s: of one layer's linear maps, up to all rows that a stage may have.
        sweep_s: of the main lane in all layers, and before, after and between these; without any
            rows there is no such sweep.
    """

    layers: int
    layer_s: np.ndarray
    sweep_s: np.ndarray


class WholeTiles:
    """Bounds of one question, one that `knows_tiles`."""

    def __init__(self, question: Question, footprint: Footprint) -> None:
        self._q, self._prices = question, Prices(question, footprint)
        self._demands = Demands(question, footprint.page)
        self._layer_s: dict[int, float] = {}
        self._known: dict[tuple[str, Places], float] = {}

    def tokens_per_s(self, way: Way, rows: Rows, enough: float = 0.0) -> float:
        """That no plan of a way exceeds with so many rows, or fewer; infinite if its sweeps are not
        as they are taken to be here.

        Args:
            enough: a bound of more rows will do if it is no more than this.
        """
        shares = way.has_cohort and not (way.passes or way.alone)
        if not shares or not set(way.homes) <= _HERE:
            return inf
        places = Places(rows.through.most, -(-rows.cohort.most // COHORTS))
        for (strategy, others), known in self._known.items():
            if strategy == way.strategy and known <= enough and others.holds(places):
                return known
        key = way.strategy, places
        if key not in self._known:
            self._known[key] = self._find(way, places)
        return self._known[key]

    def _find(self, way: Way, places: Places) -> float:
        lengths, layers = self._q.lengths, self._q.model.num_layers
        one = candidate_of(way.strategy, Elsewhere(), 1, COHORTS)
        shared = COHORTS * layers / one.sweeps_per_hosted_token(layers)
        decoded_per_s = most_decoded_per_s(self._times(places), places.cohort, shared)
        # of a request's tokens its prompt gives one
        return decoded_per_s * lengths.generated_tokens / lengths.decode_sweeps * _ROUNDED_UP

    def _times(self, places: Places) -> StageTimes:
        layers, ends_s = self._q.model.num_layers, self._prices.ends_s
        [attention] = self._prices.attention.values()
        # by one line, so that only how many rows decode matters, not in which sweeps
        line = max(attention.device, key=lambda each: each.at(places.main))
        every = range(places.main + COHORTS * places.cohort + 1)
        layer_s = np.array([self._layer(rows) for rows in every])
        beside_s = [
            ends_s(rows, rows) + layers * (attention.launch_s + line.at(rows))
            for rows in range(1, places.main + 1)
        ]
        sweep_s = layers * layer_s[: places.main + 1] + np.array([inf, *beside_s])
        return StageTimes(layers, layer_s, sweep_s)

    def _layer(self, rows: int) -> float:
        """Seconds of a layer's linear maps, of so many rows in whole tiles."""
        found = self._layer_s.get(rows)
        if found is None:
            lane, found = LaneLoad(TierLoad(rows), filled=True), 0.0
            for kind, part in _STAGES if rows else ():
                op = ProgramOp(kind, Queue.ACCEL, part, (), 0, 1, (), (), ())
                found += self._demands.of(op, [lane]).alone_s
            self._layer_s[rows] = found
        return found


def most_decoded_per_s(times: StageTimes, cohort: int, shared: float) -> float:
    """Tokens per second.

    Args:
        cohort: rows of each of `COHORTS`, at most, of which a sweep takes some or all through one
            layer, several of them through the same one if they stand there. shared: how often one
            shares a stage per sweep, in the mean at most.
    """
    return _least(lambda toll: _best_sweep(times, cohort, shared, toll), 0.0, cohort / times.layers)


def _best_sweep(times: StageTimes, cohort: int, shared: float, toll: float) -> float:
    """The most worth per second of any sweep: by Dinkelbach's iteration."""
    rows, joining = np.arange(len(times.sweep_s)), np.arange(1, COHORTS * cohort + 1)
    own = rows + toll * shared
    joined_s = times.layer_s[rows[:, None] + joining] - times.layer_s[rows, None]
    joined = joining / times.layers - toll * -(-joining // cohort)
    found = 0.0
    while True:
        worth, longer_s = _best_joins(joined, joined_s, cohort, found)
        ratio = float(((own + worth) / (times.sweep_s + longer_s)).max())
        if ratio <= found * _ROUNDED_UP:
            return found * _ROUNDED_UP
        found = ratio


def _best_joins(
    joined: np.ndarray, joined_s: np.ndarray, cohort: int, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """What cohorts that share stages are worth in a sweep, and its further seconds, by the main
    lane's rows: each in a layer of its own, some in the same one, or not at all, whichever leaves
    most where a second is worth `rate`.

    Args:
        joined, joined_s: of 1, 2, ... rows in one layer, [rows] and [main rows, rows]: as many as
            the fewest cohorts have that can.
    """
    left, main = joined - rate * joined_s, np.arange(len(joined_s))
    together: list[np.ndarray] = []
    for first in range(0, COHORTS * cohort, cohort):
        best = first + left[:, first : first + cohort].argmax(axis=1)
        together.append(np.stack([left[main, best], joined[best], joined_s[main, best]]))
    taken = [np.zeros_like(together[0])]  # by how many cohorts: what is left, worth, and seconds
    for number in range(1, COHORTS + 1):
        ways = [taken[number - 1]]
        ways += [taken[number - size] + together[size - 1] for size in range(1, number + 1)]
        found = np.stack(ways)
        taken.append(found[found[:, 0].argmax(axis=0), :, main].T)
    return taken[-1][1], taken[-1][2]


def _least(value: Callable[[float], float], low: float, high: float) -> float:
    """Of values that fall and then rise, one near the least."""
    left, right = low + _GOLDEN * (high - low), high - _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    least = min(value(low), value(high), at_left, at_right)
    for _ in range(_NARROWED):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = low + _GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = high - _GOLDEN * (high - low)
            at_right = value(right)
        least = min(least, at_left, at_right)
    return least
