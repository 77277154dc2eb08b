"""What no plan can exceed, where linear maps compute rows in whole tiles.

A programme prices rows by lines, below the stairs of tiles: rows of an execution vary, and the mean
of two sweeps may lie below the stair of their mean rows. But tokens per second of any mixture are
no more than those of its best sweep. So of plans whose cohorts share the main lane's stages, each
sweep that an execution might have is looked at, of as many rows as the plan's or fewer.

`mixtures` has the proof.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.candidate import COHORTS, candidate_of
from tandem.planner.demand import Demands
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.held_blocks import may_run_more
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.places import places_of
from tandem.planner.policies import Policy
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import LEAF_RATIO, Ceilings
from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.mixtures import ROUNDED_UP, StageTimes, most_decoded_per_s
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.way import Way

_HERE: frozenset[LayerHome] = frozenset(("resident", "streamed", "streamed-mlp"))
_STAGES = ((OpKind.STAGE, Part.PRE), (OpKind.MERGE, Part.NONE), (OpKind.STAGE, Part.POST))


def tiled_ceiling(question: Question, footprint: Footprint, policy: Policy) -> float:
    """Tokens per second that no plan of a policy exceeds, nor its execution: of each range of rows
    the programme's, or the accelerator's in whole tiles if that is less.

    Beside long prompts there are few rows, so that ranges are halved down to one number of them.
    """
    known = knows_tiles(question) and not may_run_more(question, footprint.held)
    tiles = WholeTiles(question, footprint) if known else None
    ratio, most = LEAF_RATIO if question.lengths.prompts_are_rows else 1.0, 0.0
    ceilings = Ceilings(question, footprint, policy, leaf_ratio=ratio, executed=True)
    for bounded in ceilings.leaves():
        if bounded.tokens_per_s <= most:
            break
        within = inf if tiles is None else tiles.tokens_per_s(bounded.way, bounded.rows, most)
        most = max(most, min(bounded.tokens_per_s, within))
    return most


def knows_tiles(question: Question) -> bool:
    """Whether layers are alike and compute rows in tiles, at known rates."""
    model, precision = question.model, question.precision
    alike = model.experts is None and len(set(model.layer_windows)) == 1
    known = question.measured_card is None and not precision.quantized and question.tile_rows > 1
    return alike and known and question.objective == "throughput"


class Places(NamedTuple):
    """The most rows of a sweep: in the main lane, those of them that decode, and of a cohort.

    Attributes:
        attended_here: whether the accelerator attends to all prompts.
    """

    main: int
    decoding: int
    cohort: int
    attended_here: bool

    def holds(self, other: "Places") -> bool:
        """Whether all sweeps of the others' are sweeps of these, and take no longer."""
        fewer = self.main >= other.main and self.decoding >= other.decoding
        return fewer and self.cohort >= other.cohort and self.attended_here <= other.attended_here


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
        # of requests that decode nothing, or hardly anything, sweeps of prompts alone are the most
        if not shares or not set(way.homes) <= _HERE or self._q.lengths.later_tokens <= 0:
            return inf
        places = self._places(way, rows)
        for (strategy, others), known in self._known.items():
            if strategy == way.strategy and known <= enough and others.holds(places):
                return known
        key = way.strategy, places
        if key not in self._known:
            self._known[key] = self._find(way, places)
        return self._known[key]

    def _places(self, way: Way, rows: Rows) -> Places:
        main = decoding = rows.through.most
        if not self._q.lengths.prompts_are_rows:
            every = main + rows.cohort.most
            main = self._q.step_of(rows.step_tokens)
            # the place beyond the rows', for a prompt, may be one of the accelerator
            decoding += places_of(self._q, every, rows.step_tokens) - every
        cohort = -(-rows.cohort.most // COHORTS)
        return Places(main, min(main, decoding), cohort, way.reads_here)

    def _find(self, way: Way, places: Places) -> float:
        lengths, layers = self._q.lengths, self._q.model.num_layers
        one = candidate_of(way.strategy, Elsewhere(), 1, COHORTS)
        shared = COHORTS * layers / one.sweeps_per_hosted_token(layers)
        later = lengths.later_tokens  # fewer than one of those of whom some end with their prompts
        read = 0.0 if lengths.prompts_are_rows else lengths.prompt_tokens / later
        decoded_per_s = most_decoded_per_s(self._times(places), places.cohort, shared, read)
        # of a request's tokens its prompt gives one
        return decoded_per_s * lengths.generated_tokens / later * ROUNDED_UP

    def _times(self, places: Places) -> StageTimes:
        layers, prices = self._q.model.num_layers, self._prices
        [attention] = prices.attention.values()
        # by one line, so that only how many rows decode matters, not in which sweeps
        line = max(attention.device, key=lambda each: each.at(places.decoding))
        launch_s = layers * attention.launch_s
        always_s = launch_s if places.attended_here else 0.0
        prompt_s = layers * line.per_prompt_token if places.attended_here else 0.0
        main, decoding = np.arange(places.main + 1), range(1, places.decoding + 1)
        every = range(places.main + COHORTS * places.cohort + 1)
        layer_s = np.array([self._layer(rows) for rows in every])
        embedded_s = np.array([inf, *map(prices.embedded_s, range(1, places.main + 1))])
        # a sweep in which nobody decodes may end no prompt, and so have no logits
        decode_s = [
            prices.sampled_s(rows) + launch_s - always_s + layers * line.at(rows) - prompt_s * rows
            for rows in decoding
        ]
        sweep_s = layers * layer_s[: places.main + 1] + embedded_s + always_s + prompt_s * main
        return StageTimes(layers, layer_s, sweep_s, np.array([0.0, *decode_s]))

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
