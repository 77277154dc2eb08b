"""Shares of streamed sequences and of those attended on the CPU, solved anew as a job runs.

Every few tokens, measured times of passes correct the plan's terms, and the shares are solved anew
for the sequences that there are: their KV has grown since. If passes take another time than was
predicted, by more than a fifth, that is a plan made anew, and said.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.cost.block_calibration import BlockFactors, MeasuredPass, corrected, factors_of
from tandem.cost.block_pass import PassTerms, PassWork, best_streamed, pass_s
from tandem.plan.events import StepTimes
from tandem.plan.program import OpKind, Queue
from tandem.plan.share_terms import ShareTerms

REVIEWED_EVERY = 8
"""Passes that are compared at once: fewer are told by their jitter."""
REPLANNED_BEYOND = 0.2
_NEARLY_ALL = 0.9
_WORTH_CHANGING = 0.02  # a change brings the slots' contents anew, a few copies that nothing hides


@dataclass(frozen=True, slots=True)
class ShareChange:
    """What a review came to.

    Attributes:
        streamed_rows: of a batch, places from now on.
        said: the news, if it is any: predicted and measured times of a pass.
        bounded: that more would be streamed if more memory were pinned, if that is news.
    """

    streamed_rows: int
    said: str | None = None
    bounded: str | None = None


class BlockAdaptation:
    """Follows the passes of a block; reads no clock.

    Args:
        host_rows: of a batch, places of sequences with KV on the host; streamed_rows of them.
        fixed: shares stay as they are; what passes take is told all the same, but of those with
            fewer sequences than there have been: the terms' stages do not get shorter with them,
            while the accelerator's do, as a job ends.
    """

    def __init__(
        self, terms: ShareTerms, host_rows: int, streamed_rows: int, *, fixed: bool = False
    ) -> None:
        self._fixed, self._most_rows = fixed, 0.0
        self._given = self._reference = terms
        self._references: dict[tuple[bool, bool], ShareTerms] = {}  # by a pass's ways
        self._host_rows, self._streamed = host_rows, streamed_rows
        self._factors = BlockFactors()
        self._pending: dict[int, PassWork] = {}
        self._last: tuple[int, StepTimes] | None = None
        self._window: list[MeasuredPass] = []
        self._slacks: dict[tuple[bool, bool], float] = {}
        self._told_bound = False

    @property
    def factors(self) -> BlockFactors:
        """What was measured over what was planned, as the last review found it."""
        return self._factors

    @property
    def is_due(self) -> bool:
        """Whether enough passes were measured since the last review."""
        return len(self._window) >= REVIEWED_EVERY

    def submitted(self, step: int, work: PassWork) -> None:
        """A pass that follows another one goes to the executor."""
        rows = work.resident_rows + work.host_rows
        self._most_rows = max(self._most_rows, rows)
        if not self._fixed or rows >= _NEARLY_ALL * self._most_rows:
            self._pending[step] = work

    def retired(self, step: int, times: StepTimes | None) -> None:
        """All operations of a program have ended; without times nothing is learnt.

        A pass takes the time until the program that follows it is submitted.
        """
        before, work = self._last, self._pending.pop(step - 1, None)
        self._last = None if times is None else (step, times)
        if times is None or before is None or work is None or before[0] != step - 1:
            return
        wall_s = times.submitted_s - before[1].submitted_s
        self._window.append(MeasuredPass(work, _busy(before[1].busy_s), wall_s))

    def paused(self) -> None:
        """Nothing follows at once: how long the last pass took is not known."""
        self._pending.clear()

    def review(self, now: PassWork) -> ShareChange | None:
        """Compare what was measured with what was predicted, and solve for what is there now.

        Args:
            now: of the next pass.
        """
        passes, self._window = self._window, []
        self._factors = factors_of(self._given, passes, self._factors)
        terms = corrected(self._given, self._factors, passes)
        ways = passes[-1].work.ways
        self._slacks[ways] = terms.slack
        self._reference = self._references.setdefault(ways, self._reference)
        predicted_s = sum(pass_s(self._reference, each.work) for each in passes) / len(passes)
        took_s = sum(each.wall_s for each in passes) / len(passes)
        off = max(took_s / predicted_s, predicted_s / took_s) > 1 + REPLANNED_BEYOND
        if off:
            self._reference = self._references[ways] = terms
        before = self._streamed
        changes = self._solve(terms, now)
        bounded = self._bounded(terms, now)
        if not off:
            return ShareChange(self._streamed, bounded=bounded) if changes or bounded else None
        return ShareChange(self._streamed, self._news(predicted_s, took_s, before, now), bounded)

    def _solve(self, terms: ShareTerms, now: PassWork) -> bool:
        """Whether other shares are better by enough."""
        if self._fixed or not now.host_rows:
            return False
        streamed, best_s = best_streamed(terms, now, self._host_rows, slacks=self._slacks)
        if best_s * (1 + _WORTH_CHANGING) > pass_s(terms, now):
            return False
        self._streamed = streamed
        return True

    def _bounded(self, terms: ShareTerms, now: PassWork) -> str | None:
        """Told once: what pinned memory keeps shares from."""
        if self._fixed or self._told_bound or not now.host_rows:
            return None
        _, here_s = best_streamed(terms, now, self._host_rows, slacks=self._slacks)
        streamed, best_s = best_streamed(
            terms, now, self._host_rows, pinned_only=False, slacks=self._slacks
        )
        if best_s * (1 + _WORTH_CHANGING) > here_s:
            return None
        self._told_bound = True
        return (
            f"pinned memory is for {terms.most_pinned_rows} of a batch's {self._host_rows} places "
            f"with KV on the host: {streamed} streamed would make a pass {here_s / best_s:.2f} "
            "times as fast; plan with more --pinned-memory, or by rates that are nearer"
        )

    def _news(self, predicted_s: float, took_s: float, before: int, now: PassWork) -> str:
        rows, streamed = self._host_rows, self._streamed
        found = (
            f"after {REVIEWED_EVERY} tokens: a pass was predicted to take {predicted_s:.3g} s and "
            f"took {took_s:.3g} ({took_s / predicted_s - 1:+.0%}); measured over planned: "
            f"{self._factors}"
        )
        if self._fixed:
            return f"wrongly predicted {found}; the plan stays as it is"
        shares = f"{streamed} streamed and {rows - streamed} attended on the CPU"
        if streamed == before:
            shares += ", as before"
        else:
            then = now.shared(streamed / rows)
            then_s = pass_s(self._references.get(then.ways, self._reference), then)
            shares += f" instead of {before} and {rows - before}, so that one should take "
            shares += f"{then_s:.3g} s"
        return f"planned anew {found}; of a batch's {rows} places with KV on the host {shares}"


def _busy(busy_s: Mapping[tuple[Queue, OpKind], float]) -> PassTerms:
    def of(queue: Queue, *kinds: OpKind) -> float:
        return sum(busy_s.get((queue, kind), 0.0) for kind in kinds)

    return PassTerms(
        of(Queue.ACCEL, OpKind.STAGE, OpKind.MERGE, OpKind.SAMPLE),
        of(Queue.ACCEL, OpKind.APPEND, OpKind.ATTEND),
        of(Queue.H2D, OpKind.COPY),
        of(Queue.WEIGHTS, OpKind.LOAD),
        of(Queue.CPU, OpKind.APPEND, OpKind.ATTEND),
        of(Queue.DISK, OpKind.READ),
        of(Queue.CPU, OpKind.STAGE, OpKind.MERGE),
    )
