"""In which order prompts are read, and how much of them in a step, under `--ttft-bound`.

A request's first token is wanted within the bound from its arrival. Among requests of a priority,
those whose prompts have been predicted to be read in time come first, chosen so that the fewest are
late; the others follow in their rank. What a step reads of prompts is cut for the sake of the
requests that decode (`--tpot-bound`) as long as no more first tokens are late for it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import NamedTuple

import numpy as np

from tandem.cost.step_prices import StepPrices, StepWork, TierWork
from tandem.scheduler.in_time import Job, in_time
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.view import SchedulerView

PATIENCE = 4.0
"""Bounds for which a request may be passed over: who has waited longer comes first, by rank."""
_RESERVE = 0.05  # of the bound: predictions are off by as much
_LOOKED_AT = 256  # waiting requests: what lies behind them keeps its place


class Reading(NamedTuple):
    """What is left of a prompt.

    Attributes:
        row: in which it is read; None: it waits.
        before, tokens: computed already, and to compute.
        first: it comes before others of its priority: it has been answered in part, and goes on
            after having lost its memory, or it has waited for too long.
        due_s: when its first token is, from now on.
    """

    sequence: Sequence
    row: int | None
    before: int
    tokens: int
    first: bool
    due_s: float


class _Pace(NamedTuple):
    """Seconds for each token of a prompt, and for each pair of one and a token before it."""

    token_s: float
    pair_s: float

    def seconds(self, reading: Reading) -> float:
        pairs = reading.tokens * (reading.before + reading.tokens / 2)
        return reading.tokens * self.token_s + pairs * self.pair_s


class _Order(NamedTuple):
    """Readings, and of each whether it will be late; how many will be."""

    readings: list[Reading]
    late: list[bool]

    @property
    def num_late(self) -> int:
        return sum(self.late)


@dataclass(frozen=True, slots=True)
class FirstTokenRule:
    """Orders prompts by predicted time.

    What a request has in the prefix cache is not known of before it has a row, nor when memory will
    be free: predictions count computing alone.

    Attributes:
        bound_s: from a request's arrival to its first token.
        clock: seconds; the one that arrivals were read from.
        sequence_of: the sequence in a row.
    """

    bound_s: float
    clock: Callable[[], float]
    sequence_of: Callable[[int], Sequence]

    def ordered(self, view: SchedulerView, prices: StepPrices) -> SchedulerView:
        """The same view, its prompts in order, with what a step may read of them."""
        waiting = iter(view.waiting)
        looked_at = list(islice(waiting, _LOOKED_AT))
        if not (looked_at or len(view.runnable.prefills)):
            return view
        paces = _Paces(view, prices)
        readings = self._readings(view, looked_at, paces.lead_s)
        most = view.config.max_num_batched_tokens
        order = _order(readings, paces.of(most))
        cut = paces.keeping(view.config.tpot_bound_s, most, order.readings[0].before)
        if cut < most and not any(self._overdue(each) for each in readings):
            slower = _order(readings, paces.of(cut))
            if slower.num_late <= order.num_late:
                order, most = slower, cut
        return _apply(view, order, waiting, most)

    def _readings(
        self, view: SchedulerView, waiting: list[Sequence], lead_s: float
    ) -> list[Reading]:
        """By rank."""
        rows, now_s = view.rows, self.clock()

        def reading(sequence: Sequence, row: int | None, before: int, tokens: int) -> Reading:
            waited_s = now_s - sequence.arrived_s
            first = sequence.num_output > 0 or waited_s > PATIENCE * self.bound_s
            due_s = (1 - _RESERVE) * self.bound_s - waited_s - lead_s
            return Reading(sequence, row, before, tokens, first, due_s)

        prefills = view.runnable.prefills
        lefts = rows.remaining(prefills).tolist()
        found = [
            reading(self.sequence_of(row), row, int(rows.submitted[row]), left)
            for row, left in zip(prefills.tolist(), lefts, strict=True)
        ]
        found += [reading(each, None, 0, len(each.tokens)) for each in waiting]
        return sorted(found, key=lambda each: each.sequence.rank)

    @staticmethod
    def _overdue(reading: Reading) -> bool:
        return reading.first and not reading.sequence.num_output


class _Paces:
    """How long prompts take beside what decodes on the accelerator.

    Attributes:
        lead_s: until a step that is proposed now begins, and its tokens are known.
    """

    def __init__(self, view: SchedulerView, prices: StepPrices) -> None:
        decodes = view.runnable.decodes
        mine = decodes[view.rows.num_host_blocks[decodes] == 0]
        self._prices, self._block = prices, view.config.block_size
        self._work = StepCounter(view, prices).work(StepProposal(decode=mine), ())
        alone_s = self._step_s(0) if len(mine) else 0.0
        self.lead_s = view.config.launch_ahead_steps * alone_s

    def of(self, tokens: int) -> _Pace:
        """In steps of so many tokens of prompts."""
        prices = self._prices
        return _Pace(self._step_s(tokens) / tokens, prices.num_layers * prices.device.pair_s)

    def keeping(self, bound_s: float | None, most: int, before: int) -> int:
        """Most tokens of a prompt, of which so many have been computed before, with which a step
        keeps the bound: a block at least, and all where nobody decodes.
        """
        if bound_s is None or not self._work.decodes or self._step_s(most, before) <= bound_s:
            return most
        low, high = min(self._block, most), most
        while high - low > 1:
            middle = (low + high) // 2
            keeps = self._step_s(middle, before) <= bound_s
            low, high = (middle, high) if keeps else (low, middle)
        return low

    def _step_s(self, tokens: int, before: int | None = None) -> float:
        """With so many tokens of a prompt after `before`; None: their attention is left out."""
        work, device = self._work, self._work.device
        seen = pairs = 0.0
        if before is not None:
            seen, pairs = before + tokens, tokens * (before + tokens / 2)
        read = TierWork(device.queries + tokens, device.keys + seen, device.pairs + pairs)
        whole = StepWork(work.decodes, tokens, work.logits, read, work.host)
        return self._prices.forecast(whole).time_s


def _order(readings: list[Reading], pace: _Pace) -> _Order:
    """One priority after the other: who comes first anyway, who is in time, who is late."""
    order = _Order([], [])
    begin_s = 0.0
    for _, group in groupby(readings, key=lambda each: each.sequence.priority):
        first: list[Reading] = []
        others: list[Reading] = []
        for each in group:
            (first if each.first else others).append(each)
        begin_s += sum(map(pace.seconds, first))
        kept = in_time([Job(pace.seconds(each), each.due_s) for each in others], begin_s)
        begin_s += sum(map(pace.seconds, others))
        by_place = list(zip(others, kept, strict=True))
        order.readings.extend(first)
        order.readings.extend(each for each, keeps in by_place if keeps)
        order.readings.extend(each for each, keeps in by_place if not keeps)
        order.late.extend([False] * (len(first) + sum(kept)))
        order.late.extend([True] * (len(kept) - sum(kept)))
    return order


def _apply(
    view: SchedulerView, order: _Order, not_looked_at: Iterable[Sequence], most_tokens: int
) -> SchedulerView:
    """Rows whose prompts are being read go behind waiting requests only if they are late anyway."""
    ahead: list[int] = []
    behind: list[int] = []
    waiting: list[Sequence] = []
    dues: dict[str, float] = {}
    before_them = 0
    for reading, late in zip(order.readings, order.late, strict=True):
        if reading.row is None:
            waiting.append(reading.sequence)
            if not reading.first:
                dues[reading.sequence.request_id] = reading.due_s
            before_them += not behind
        else:
            (behind if late and waiting else ahead).append(reading.row)
    prefills = np.array(ahead, dtype=np.int64)
    return view._replace(
        runnable=view.runnable._replace(prefills=prefills),
        waiting=list(chain(waiting, not_looked_at)),
        behind=np.array(behind, dtype=np.int64),
        num_before_them=before_them if behind else 0,
        most_prompt_tokens=most_tokens,
        dues=dues,
    )
