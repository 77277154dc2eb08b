"""Step programs without arrays, for an executor that computes nothing (`simulator/`).

What such a sweep is, the scheduler decides as ever; what it computes is counted from the row table,
as `count_work` would count it from the arrays that are not made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.cost.lane_work import LaneWork
from tandem.cost.stage import AttentionWork
from tandem.plan.binding import IntArray, LongArray
from tandem.plan.program import LaneShape, ProgramTemplate, StepProgram
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.in_flight import Flight, RowsInFlight, SamplingInFlight, StepInFlight
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.step_compiler import MAIN, StepCompiler, cached_sampling, cached_sweep
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.scheduler.cohort import Cohort

_NO_ATTENTION = AttentionWork(0, 0, 0)


@dataclass(frozen=True, slots=True)
class CountedProgram(StepProgram):
    """A sweep of a main lane, or its sampling.

    Attributes:
        work: of the lane of a sweep; None: the program samples.
        num_sampled: rows whose next token is sampled.
    """

    work: LaneWork | None = None
    num_sampled: int = 0


class _TierTokens(NamedTuple):
    """What a sweep computes of the rows that lie in one tier.

    Attributes:
        seen: int32 [rows that decode]; tokens that each sees, its own included.
        chunks: of prompts, each from a token to another (exclusive).
    """

    seen: IntArray
    chunks: list[tuple[int, int]]

    @property
    def num_tokens(self) -> int:
        """Tokens."""
        return len(self.seen) + sum(end - begin for begin, end in self.chunks)

    def attention(self, window: int) -> AttentionWork:
        """Over the rows' keys, in a layer of that window."""
        tokens = self.num_tokens
        if not tokens:
            return _NO_ATTENTION
        keys = pairs = int((np.minimum(self.seen, window) if window else self.seen).sum())
        for begin, end in self.chunks:
            keys += end - (max(0, begin - window + 1) if window else 0)
            pairs += _pairs(end, window) - _pairs(begin, window)
        return AttentionWork(tokens, pairs, keys)


class CountingCompiler(StepCompiler):
    """Counts sweeps without cohorts over rows that each lie in one tier; compiles all others, and
    all once some row's sampling needs its whole history.

    Args:
        windows: of each layer of the model.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        rows: RowTable,
        flight: Flight,
        sequence_of: Callable[[int], Sequence],
        *,
        windows: tuple[int, ...],
    ) -> None:
        super().__init__(config, rows, flight, sequence_of)
        self._windows, self._different = windows, tuple(set(windows))
        self._templates: dict[tuple[int, bool, bool, bool], ProgramTemplate] = {}

    def sweep(
        self,
        decode: LongArray,
        chunks: list[tuple[int, int]],
        starts: tuple[LongArray, ...],
        joins: "list[Cohort]",
        passes: int,
        *,
        ahead: bool,
    ) -> "tuple[list[StepProgram], list[Cohort]]":
        """See `StepCompiler`."""
        r = self._rows
        rows = decode
        if chunks:
            rows = np.concatenate([decode, np.array([row for row, _ in chunks], dtype=np.int64)])
        on_host = None if starts or joins or r.had_late else self._on_host(rows)
        if on_host is None:
            return super().sweep(decode, chunks, starts, joins, passes, ahead=ahead)
        before = r.submitted[rows]
        after = before + 1
        if chunks:
            after[len(decode) :] = before[len(decode) :] + [tokens for _, tokens in chunks]
        # no token of theirs is left to compute after this step: they sample the next
        reaches = after == r.known[rows] + r.pending[rows]
        by_tier = _by_tier(len(decode), before, after, on_host)
        work = self._work(by_tier, int(np.count_nonzero(reaches)))
        return self._submit(RowSet(r, rows), after, rows[reaches], work), []

    def _on_host(self, rows: LongArray) -> NDArray[np.bool_] | None:
        """Which rows lie on the host; None: some have blocks in both tiers."""
        r = self._rows
        hosted = r.num_host_blocks[rows]
        on_host = hosted > 0
        whole = not on_host.any() or (hosted == r.num_blocks[rows])[on_host].all()
        return on_host if whole else None

    def _submit(
        self, rows: RowSet, after: IntArray, sampled: LongArray, work: LaneWork
    ) -> list[StepProgram]:
        """The programs, and what is recorded of them."""
        r, flight = self._rows, self._flight
        step = flight.new_step()
        r.submitted[rows.index] = after
        r.last_step[rows.index] = step
        record = StepInFlight(step, {MAIN: RowsInFlight(rows, after)}, due={("done", MAIN)})
        flight.steps[step] = record
        template = self._template(work, head=len(sampled) > 0)
        wait_s = self._config.max_join_wait_s
        programs: list[StepProgram] = [
            CountedProgram(step, template, max_join_wait_s=wait_s, work=work)
        ]
        if len(sampled):
            chosen = rows if len(sampled) == len(rows) else RowSet(r, sampled)
            programs.append(self._sampling_of(record, chosen))
        return programs

    def _sampling_of(self, record: StepInFlight, rows: RowSet) -> CountedProgram:
        step = self._flight.new_step()
        self._flight.sampling[step, MAIN] = SamplingInFlight(record.step_id, MAIN, rows)
        record.due.add((f"tokens{MAIN}", step))
        self._rows.pending[rows.index] += 1
        self._rows.on_device[rows.index] = True
        return CountedProgram(
            step,
            cached_sampling(1),
            sampling_lanes=(MAIN,),
            forward_step=record.step_id,
            num_sampled=len(rows),
        )

    def _template(self, work: LaneWork, *, head: bool) -> ProgramTemplate:
        layers = self._config.layers.of(work.tokens)
        device, host = work.appended[Tier.DEVICE] > 0, work.appended[Tier.HOST] > 0
        key = id(layers), device, host, head  # the configuration keeps them
        known = self._templates.get(key)
        if known is None:
            shape = LaneShape(device=device, host=host, head=head)
            known = cached_sweep(self._config.num_layers, (shape,), layers)
            self._templates[key] = known
        return known

    # --- counting ---------------------------------------------------------------------------------

    def _work(self, by_tier: dict[Tier, _TierTokens], logits: int) -> LaneWork:
        appended = {tier: tokens.num_tokens for tier, tokens in by_tier.items()}
        by_window = {
            window: {tier: tokens.attention(window) for tier, tokens in by_tier.items()}
            for window in self._different
        }
        return LaneWork(sum(appended.values()), logits, by_window, self._windows, appended)


def _by_tier(
    decodes: int, before: IntArray, after: IntArray, on_host: NDArray[np.bool_]
) -> dict[Tier, _TierTokens]:
    """Rows with so many submitted tokens before and after a step, the decoding ones first."""
    seen, hosted = after[:decodes], on_host[:decodes]
    chunks = list(zip(before[decodes:].tolist(), after[decodes:].tolist(), strict=True))
    if not on_host.any():
        nothing = _TierTokens(seen[:0], [])
        return {Tier.DEVICE: _TierTokens(seen, chunks), Tier.HOST: nothing}
    at_host = on_host[decodes:].tolist()
    return {
        tier: _TierTokens(
            seen[hosted == on],
            [chunk for chunk, there in zip(chunks, at_host, strict=True) if there == on],
        )
        for tier, on in ((Tier.DEVICE, False), (Tier.HOST, True))
    }


def _pairs(tokens: int, window: int) -> int:
    """Of the first `tokens` tokens of a sequence and what each sees: up to `window` with itself."""
    growing = min(tokens, window) if window else tokens
    return growing * (growing + 1) // 2 + (tokens - growing) * window
