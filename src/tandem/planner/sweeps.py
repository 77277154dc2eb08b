"""Sweeps of a candidate: their programs, and their time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from tandem.plan.interposition import Visit, token_sweeps
from tandem.plan.program import LaneShape, OpKind, Part, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.planner.bound.layer_bound import LayerBound
from tandem.planner.bound.least_sweep import LeastSweep, LeastSweeps
from tandem.planner.bound.sweep_bound import SweepBound
from tandem.planner.candidate import COHORTS, joined_ahead
from tandem.planner.demand import Demand, Demands
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.schedule import Schedules, SweepCounts, schedule_each
from tandem.planner.fluid.virtual_time import SweepTime, repeated_sweep, steady_sweep
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad
from tandem.planner.question import Question
from tandem.planner.sweep_load import SweepLoad
from tandem.planner.utilisation import mean_sweep

_WARM_UP_SWEEPS = 1
"""Before the one whose time is taken, where a cohort joins each a layer further."""
_WARM_UP_TURNS = COHORTS
"""Likewise, of cohorts that have passes of their own and take turns."""
_WARM_UP_AHEAD = 2
"""Likewise, of cohorts of which two join each sweep."""
_COHORT = LaneShape(suspends=True, device=False, host=True)
_AHEAD = (0, 0, 1)
"""Of which cohort lanes are, where two follow each other from layer to layer."""


_Asked = dict[tuple[OpKind, Part, Queue, int], Demand]
"""What operations ask for on the same lanes, in the same layer."""


class _Turn(NamedTuple):
    """A sweep's lanes, and which cohort each is of where several are told apart."""

    lanes: tuple[LaneShape, ...]
    cohorts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Scheduled:
    """A turn's schedule, where that is looked up by identity: it has a lane for each layer."""

    schedule: Schedule
    cohorts: tuple[int, ...]


class Sweeps:
    """Times of sweeps for one question; equal ones are computed once.

    Args:
        like: of a question that may have something in common with this one.
    """

    def __init__(
        self,
        question: Question,
        footprint: Footprint,
        schedules: Schedules,
        like: "Sweeps | None" = None,
    ) -> None:
        self._q = question
        self._demands = Demands(question, footprint.page)
        self._dram = question.hardware.host.pool_bytes_per_s
        self._both_ways: float = question.link_both_ways
        self._schedules = schedules
        # of all sweeps of a token, with which lanes are of which cohort
        self._scheduled: dict[tuple[object, ...], list[_Scheduled]] = {}
        if like is not None and like._schedules is schedules:
            self._scheduled = like._scheduled
        self._times: dict[tuple[Elsewhere, SweepLoad], SweepTime] = {}
        self._asked: dict[tuple[tuple[LaneLoad, ...], bool, int], _Asked] = {}
        self._layer = LayerBound(question, self._demands, None if like is None else like._layer)
        self._bound = SweepBound(question, self._demands, self._layer)
        self._least = LeastSweeps(self._layer)

    @property
    def demands(self) -> Demands:
        """What operations ask for."""
        return self._demands

    def time(self, elsewhere: Elsewhere, load: SweepLoad) -> SweepTime:
        """In virtual time, with everything shared."""
        key = (elsewhere, load)
        known = self._times.get(key)
        if known is None:
            known = self._times[key] = self._time(elsewhere, load)
        return known

    def _time(self, elsewhere: Elsewhere, load: SweepLoad) -> SweepTime:
        sweeps = self._alike(elsewhere, load)
        if load.cohort is None:
            found = repeated_sweep(sweeps[0], self._dram, both_ways=self._both_ways)
        else:
            cycle = len(sweeps) - _warm_up_turns(load) if load.passes else 1
            found = steady_sweep(sweeps, self._dram, cycle=cycle, both_ways=self._both_ways)
        if load.ahead:
            found = self._with_sweeps_between(found, elsewhere, load)
        # loads that were ahead may make one sweep of a few shorter than many can be
        least_s = self.bound_s(elsewhere, load)
        return replace(found, period_s=least_s) if least_s > found.period_s else found

    def _alike(self, elsewhere: Elsewhere, load: SweepLoad) -> list[PricedSweep]:
        """Sweeps that follow each other, layers alike taken for one; equal ones are one object."""
        loads, known = load.lanes, dict[int, Demand]()
        priced = dict[_Scheduled, PricedSweep]()
        found = list[PricedSweep]()
        for one in self._schedules_of(elsewhere, load):
            if one not in priced:
                priced[one] = self._priced(one.schedule, loads, one.cohorts, elsewhere, known)
            found.append(priced[one])
        return found

    def _schedules_of(self, elsewhere: Elsewhere, load: SweepLoad) -> "list[_Scheduled]":
        main, (layers, _) = load.main, self._layers_of(elsewhere, load)
        tiers = bool(main.device.tokens), bool(main.host.tokens)
        key = (*tiers, load.cohort is None, load.passes, load.halves, load.ahead, layers)
        found = self._scheduled.get(key)
        if found is None:
            of, one = self._schedules.of, dict[_Turn, _Scheduled]()
            turns = self._turns(load)
            for turn in dict.fromkeys(turns):
                one[turn] = _Scheduled(of(turn.lanes, layers), turn.cohorts)
            found = self._scheduled[key] = [one[turn] for turn in turns]
        return found

    def _with_sweeps_between(
        self, joined: SweepTime, elsewhere: Elsewhere, load: SweepLoad
    ) -> SweepTime:
        """The mean of the sweeps that both cohorts join, and of those from one of their tokens to
        the next.
        """
        share = joined_ahead(self._q.model.num_layers)
        without = self.time(elsewhere, load._replace(cohort=None, ahead=False))
        return mean_sweep(((share, joined), (1 - share, without)))

    def bound_s(self, elsewhere: Elsewhere, load: SweepLoad) -> float:
        """Less than which no such sweep can take."""
        return self._bound.seconds(self._layers_of(elsewhere, load)[1], load)

    def least(self, elsewhere: Elsewhere) -> LeastSweep:
        """Less than which none takes that serves any rows in all layers, however many are lent."""
        plain = elsewhere.lending(0) if elsewhere.lent else elsewhere
        counts = self._schedules.layers(plain, prompts=False)[1]
        return self._least.of(counts, plain.may_be_lent)

    def row_s(self) -> float:
        """Less than which none takes longer by each row that decodes in all its layers, by the
        mean context; 0 where times are measured, which may be in steps.
        """
        return self._least.row_s(self._q.lengths.context_tokens) if self._q.follows_rates else 0.0

    @cached_property
    def prompt_leaves_s(self) -> float:
        """For which the copy of a prompt's KV to the host takes the link."""
        blocks = math.ceil(self._q.lengths.prompt_tokens / self._q.block_size)
        return self._demands.of_blocks(Queue.D2H, blocks).alone_s

    def attention_s(self, lane: LaneLoad) -> float:
        """Less than which attention of all but a cohort takes in no sweep with this main lane."""
        return self._least.attention_s(lane)

    def token_s(self, elsewhere: Elsewhere) -> float:
        """Less than which no token of a prompt takes, in any such sweep."""
        return self._bound.token_s(elsewhere.whole_on_cpu, elsewhere.mlps_on_cpu, elsewhere.experts)

    def cpu_token_s(self, elsewhere: Elsewhere) -> float:
        """Of it, in a layer that the CPU computes, or whose MLP it does."""
        return self._bound.cpu_token_s(elsewhere.experts, whole=elsewhere.how == "cpu")

    def cpu_layer_s(self, elsewhere: Elsewhere, rows: int) -> float:
        """Less than which a layer does not take, attention aside, that the CPU computes in a sweep
        that decodes so many rows, or whose MLP it does; of a streamed one, if it were lent.
        """
        whole = elsewhere.how == "cpu" if elsewhere.on_cpu else not elsewhere.mlps
        return self._least.cpu_layer_s(rows, elsewhere.experts, whole=whole)

    def stages_s(self, tokens: int, logits: int) -> float:
        """All but attention of a sweep's main lane, on the accelerator: less than which it does not
        take where the CPU computes no layers.
        """
        return self._least.stages_s(tokens, logits)

    def layer_s(self, tokens: int) -> float:
        """Of that, a layer that may be elsewhere."""
        return self._least.layer_s(tokens)

    def computed_s(self, elsewhere: Elsewhere, tokens: int, logits: int) -> float:
        """Less than which all but attention does not take in a sweep that reads prompts."""
        stages_s = self.stages_s(tokens, logits)
        on_cpu = elsewhere.whole_on_cpu + elsewhere.mlps_on_cpu
        if not on_cpu:
            return stages_s
        return stages_s + on_cpu * (tokens * self.cpu_token_s(elsewhere) - self.layer_s(tokens))

    def each_operation(self, elsewhere: Elsewhere, load: SweepLoad) -> list[PricedSweep]:
        """The sweep of `time`, those before and one that follows, each operation by itself."""
        (layers, _), loads = self._layers_of(elsewhere, load), load.lanes
        # the first one is lived through in part, and leaves the next a little otherwise than it is
        turns = self._turns(load, more=2 if load.cohort is None else 1)
        if load.passes and not load.halves:  # the last sweep but one is the second cohort's first
            turns = turns[: _WARM_UP_TURNS + COHORTS + 1]
        return [
            self._priced(
                schedule_each(self._q.model.num_layers, turn.lanes, layers),
                loads,
                turn.cohorts,
                elsewhere,
                {},
            )
            for turn in turns
        ]

    def _layers_of(self, elsewhere: Elsewhere, load: SweepLoad) -> tuple[SweepLayers, SweepCounts]:
        return self._schedules.layers(elsewhere, prompts=not load.decodes_only)

    def _turns(self, load: SweepLoad, more: int = 0) -> list[_Turn]:
        main = LaneShape(device=bool(load.main.device.tokens), host=bool(load.main.host.tokens))
        if load.halves:
            return self._in_halves((main,) if load.main.tokens else (), load.passes)
        if load.passes:
            return self._with_passes(main, load.passes)
        first = self._q.model.num_layers // 2 - _WARM_UP_SWEEPS
        cursors = range(first, first + _WARM_UP_SWEEPS + 1 + more)
        if load.cohort is None:
            return [_Turn((main,)) for _ in cursors]
        if load.ahead:
            last = cursors[-1]
            return [
                _Turn((main, *(replace(_COHORT, cursor=at) for at in (cursor, cursor - 1))), _AHEAD)
                for cursor in range(max(1, first + _WARM_UP_SWEEPS - _WARM_UP_AHEAD), last + 1)
            ]
        beside = (main,) if load.main.tokens else ()
        return [_Turn((*beside, replace(_COHORT, cursor=cursor))) for cursor in cursors]

    def _with_passes(self, main: LaneShape, passes: int) -> list[_Turn]:
        """The end of a token of each cohort, and all sweeps of the next one."""
        token = [
            (main, *_visiting(visits, 1, enters=number == 0))
            for number, visits in enumerate(token_sweeps(self._q.model.num_layers, passes))
        ]
        return [
            _Turn(lanes, (cohort,) * len(lanes))
            for lanes in (token[-1], *token)
            for cohort in range(COHORTS)
        ]

    def _in_halves(self, main: tuple[LaneShape, ...], passes: int) -> list[_Turn]:
        """The end of a token of both halves, and all sweeps of the next one.

        Args:
            main: none where no prompt is read.
        """
        token: list[_Turn] = []
        for number, visits in enumerate(token_sweeps(self._q.model.num_layers, passes)):
            lanes, cohorts = list(main), [0] * len(main)
            for cohort in range(COHORTS):
                own = _visiting(visits, len(lanes), enters=number == 0)
                lanes += own
                cohorts += [cohort] * len(own)
            token.append(_Turn(tuple(lanes), tuple(cohorts)))
        return [token[-1], *token]

    def _priced(
        self,
        schedule: Schedule,
        loads: Sequence[LaneLoad],
        cohorts: tuple[int, ...],
        elsewhere: Elsewhere,
        known: dict[int, Demand],
    ) -> PricedSweep:
        """With what its operations cost.

        Args:
            known: of operations with the same loads and layers elsewhere, by their identity.
        """
        hosted, experts = elsewhere.embedding, elsewhere.experts
        by_lanes: dict[tuple[int, ...], _Asked] = {}
        demands: list[Demand] = []
        for op in schedule.ops:
            demand = known.get(id(op))
            if demand is None:
                asked = by_lanes.get(op.lanes)
                if asked is None:
                    lanes = tuple([loads[lane] for lane in op.lanes])
                    asked = self._asked.setdefault((lanes, hosted, experts), {})
                    by_lanes[op.lanes] = asked
                key = op.kind, op.part, op.queue, op.layer
                demand = asked.get(key)
                if demand is None:
                    lanes = [loads[lane] for lane in op.lanes]
                    demand = self._demands.of(op, lanes, hosted=hosted, experts=experts)
                    asked[key] = demand
                known[id(op)] = demand
            demands.append(demand)
        return PricedSweep(schedule, tuple(demands), cohorts)


def _warm_up_turns(load: SweepLoad) -> int:
    return 1 if load.halves else _WARM_UP_TURNS


def _visiting(visits: Sequence[Visit], before: int, *, enters: bool) -> list[LaneShape]:
    """The lanes of a cohort in one sweep, after `before` others."""
    lanes = [_COHORT] if enters else []
    for visit in visits:
        beside = None if visit.at == visit.layer else visit.at
        after = before + len(lanes) - 1 if lanes else None
        lanes.append(replace(_COHORT, cursor=visit.layer, beside=beside, after=after))
    return lanes
