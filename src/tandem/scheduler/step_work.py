"""What a proposed step would compute, counted from the row table: some vector sums, no programs."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tandem.cost.step_prices import CohortWork, StepPrices, StepWork, TierWork
from tandem.plan.binding import LongArray
from tandem.plan.interposition import token_rhythm
from tandem.scheduler.kept import Kept
from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import UNLIMITED
from tandem.scheduler.view import SchedulerView

_SHARED_VISITS = 1  # a cohort's that has no passes of its own
_Keys = NDArray[np.float64]
_NEXT_TOKEN: _Keys = np.array(1.0)
_NO_WORK = TierWork()
_ALL_SEE_ALL = ((0, 1.0),)
"""Windows of a model that has none."""


class StepCounter:
    """Counts the work of proposals over one view.

    Rows' keys are told apart by tier from their numbers of blocks: the leading ones lie on the
    accelerator. Where blocks have gone to and fro, that is off by a part of a block.
    """

    def __init__(self, view: SchedulerView, prices: StepPrices) -> None:
        self.view, self.prices = view, prices
        self._rows, self._size = view.rows, view.config.block_size
        self._block: _Keys = np.array(float(self._size))
        self._last: tuple[LongArray, StepWork] | None = None

    def work(self, proposal: StepProposal, cohorts: tuple[CohortWork, ...]) -> StepWork:
        """The main lane's of a proposal, beside cohorts."""
        decodes, alone = len(proposal.decode), self.decoding(proposal.decode)
        if not (proposal.chunks or proposal.admissions):
            if not cohorts:
                return alone
            return StepWork(decodes, 0, decodes, alone.device, alone.host, cohorts)
        device, host = alone.device, alone.host
        for row, tokens in self._chunks(proposal):
            there, here = self._prompt(row, tokens)
            device, host = _plus(device, there), _plus(host, here)
        for admission in proposal.admissions:
            chunk = _prompt_work(0, admission.num_tokens)
            if admission.device_limit == 0:
                host = _plus(host, chunk)
            else:
                device = _plus(device, chunk)
        prompts = sum(chunk.num_tokens for chunk in proposal.chunks)
        prompts += sum(admission.num_tokens for admission in proposal.admissions)
        logits = decodes + len(proposal.chunks) + len(proposal.admissions)
        return StepWork(decodes, prompts, logits, device, host, cohorts)

    def decoding(self, rows: LongArray) -> StepWork:
        """Of rows that decode in the main lane, beside nobody."""
        last = self._last  # options often differ in all but these
        if last is None or last[0] is not rows:
            device, host = _attended(self._device_keys[rows]), _attended(self._host_keys[rows])
            last = self._last = rows, StepWork(len(rows), 0, len(rows), device, host)
        return last[1]

    def prompt_weight(self, rows: LongArray, prompts: int) -> float:
        """How much less the accelerator takes for one of `prompts` tokens of prompts than for one
        that `rows`, alone in the main lane, decode; as much where these are predicted to take none.
        """
        token_s = self.prices.forecast(self.decoding(rows)).time_s / len(rows)
        if not token_s:
            return 1.0
        return self.prices.linear.at(prompts) / prompts / token_s

    def cohorts(self, members: Iterable[LongArray]) -> tuple[CohortWork, ...]:
        """By their rows; they stay where they are."""
        keys = self._host_keys
        return tuple([CohortWork(len(rows), _sum(keys[rows])) for rows in members])

    @Kept
    def under_way(self) -> tuple[CohortWork, ...]:
        """The view's, likewise."""
        cohorts = self.view.cohorts
        return self.cohorts([cohort.rows.rows for cohort in cohorts.values()]) if cohorts else ()

    def in_the_mean(
        self, cohorts: Iterable[CohortWork], passes: int, aheads: Iterable[bool]
    ) -> tuple[CohortWork, ...]:
        """The same with what they do in the mean of all sweeps, from one token's begin to the next
        one's, with up to `passes` passes in each sweep that they take part in.

        Whether a cohort joined is known when the next sweep has been submitted already, so that it
        takes part in one of as many as may be in flight, unless it joins before it is known: each
        cohort `ahead`, or not.
        """
        layers, in_flight = self._cohort_layers, self.view.config.launch_ahead_steps

        def mean(cohort: CohortWork, every: int) -> CohortWork:
            sweeps, own = token_rhythm(layers, passes, every, in_flight)
            rows, keys = cohort.rows, cohort.keys
            return CohortWork(rows, keys, layers / sweeps, own / sweeps, 1 / sweeps)

        return tuple(
            [
                mean(cohort, 1 if ahead else in_flight)
                for cohort, ahead in zip(cohorts, aheads, strict=True)
            ]
        )

    def crossing(self, cohorts: Iterable[CohortWork], passes: int) -> tuple[CohortWork, ...]:
        """The same in a sweep of which all take part."""
        visits = min(self._cohort_layers, passes + _SHARED_VISITS)
        own = visits - _SHARED_VISITS
        return tuple([CohortWork(each.rows, each.keys, visits, own) for each in cohorts])

    @property
    def _cohort_layers(self) -> int:
        """Those at which cohorts leave the sweep."""
        return len(self.view.config.cohort_layers)

    def host_keys(self, rows: LongArray) -> _Keys:
        """Keys on the host that each row's next token sees in one layer, in the mean."""
        return self._host_keys[rows]

    @Kept
    def _contexts(self) -> tuple[_Keys, _Keys]:
        """Tokens that each row's next one sees, by tier: [rows of the table] each, whole numbers.

        Of all rows at once, since every option has most of them.
        """
        r = self._rows
        total, hosted = r.submitted + _NEXT_TOKEN, r.num_host_blocks
        leading = np.minimum((r.num_blocks - hosted) * self._block, total)
        on_device = np.where(hosted, leading, total)
        return on_device, total - on_device

    @Kept
    def _host_keys(self) -> _Keys:
        return self._keys(self._contexts[1])

    @Kept
    def _device_keys(self) -> _Keys:
        return self._keys(self._contexts[0])

    def _keys(self, contexts: _Keys) -> _Keys:
        """Of so many, those that are seen in one layer, in the mean."""
        windows = self.prices.windows
        if windows == _ALL_SEE_ALL:
            return contexts
        keys = np.zeros(len(contexts))
        for window, share in windows:
            keys += share * (np.minimum(contexts, window) if window else contexts)
        return keys

    def all_here(self, rows: LongArray) -> StepWork:
        """Of the first of these rows, in their order, that the accelerator has room for together,
        a token of each, as if all their keys were there.
        """
        r = self._rows
        ends = np.cumsum(r.num_blocks[rows] + 1)  # a block to grow by
        fitting = rows[: int(np.searchsorted(ends, self._room.device, side="right"))]
        contexts = r.submitted[fitting].astype(np.float64) + 1.0
        count = len(fitting)
        return StepWork(count, 0, count, _attended(self._keys(contexts)), TierWork())

    def half_way(self, rows: LongArray) -> TierWork:
        """What rows that lie on the accelerator attend to in the mean of their outputs, a token of
        each, in one layer; all of them no more than there is room for.
        """
        r = self._rows
        contexts = (r.prompt[rows].astype(np.int64) + r.limit[rows]) / 2
        return _attended(self._keys(_within(contexts, self._room.device * self._size)))

    def contexts_half_way(self, rows: LongArray) -> _Keys:
        """Tokens on the host that each row attends to likewise, some or all of whose blocks lie
        there.
        """
        r = self._rows
        prompts, limits = r.prompt[rows].astype(np.int64), r.limit[rows].astype(np.int64)
        leading = (r.num_blocks[rows] - r.num_host_blocks[rows]).astype(np.int64) * self._size
        # what of a context lies beyond the leading blocks, in the mean from the prompt to the limit
        last, first = np.maximum(0, limits - leading), np.maximum(0, prompts - leading)
        return (last**2 - first**2) / (2 * np.maximum(1, limits - prompts))

    def keys_half_way(self, contexts: _Keys) -> float:
        """Keys of such contexts; all of them no more than the host has room for."""
        return float(self._keys(_within(contexts, self._room.host * self._size)).sum())

    @Kept
    def _room(self) -> BlockNeed:
        return self.view.kv.total()

    def _chunks(self, proposal: StepProposal) -> list[tuple[int, int]]:
        return [(chunk.row, chunk.num_tokens) for chunk in proposal.chunks]

    def _prompt(self, row: int, tokens: int) -> tuple[TierWork, TierWork]:
        """Of a row that lies in one tier, or whose prompt goes to where its end lies."""
        work = _prompt_work(int(self._rows.submitted[row]), tokens)
        limit = int(self._rows.device_limit[row])
        on_host = limit != UNLIMITED and limit * self._size < int(self._rows.submitted[row])
        hosted = limit == 0 or on_host
        return (TierWork(), work) if hosted else (work, TierWork())


def _attended(keys: _Keys) -> TierWork:
    """By rows that each see so many of a tier's keys."""
    seen = _sum(keys)
    return TierWork(int(np.count_nonzero(keys)), seen, seen) if seen else _NO_WORK


def _sum(keys: _Keys) -> float:
    return float(np.add.reduce(keys))


def _within(contexts: _Keys, room: int) -> _Keys:
    """As they are, or in proportion so many tokens in sum: requests that name no bound could become
    as long as the model allows, but not all at once.
    """
    total = float(contexts.sum())
    return contexts * (room / total) if total > room else contexts


def _prompt_work(before: int, tokens: int) -> TierWork:
    """`tokens` tokens of a prompt after `before` of them."""
    pairs = tokens * before + tokens * (tokens + 1) / 2
    return TierWork(tokens, float(before + tokens), pairs)


def _plus(one: TierWork, other: TierWork) -> TierWork:
    return TierWork(one.queries + other.queries, one.keys + other.keys, one.pairs + other.pairs)
