"""What sweeps of a plan take with fewer rows than it has places, however many there are."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from tandem.planner.candidate import Candidate
from tandem.planner.prediction import Predictor

_FINE, _COARSE = 2**0.5, 4.0
"""From one number of rows that is timed to the next: of sweeps that only decode, and of those for
what prompts add to them.
"""
_OCTAVE = 4
"""Numbers of a step's tokens that are timed, from one to twice as many: tiles of maps are full at
some of them.
"""


@dataclass(slots=True)
class RowPrices:
    """Between sweeps that are timed as they are asked for; methods as of `SweepPrices`.

    Attributes:
        plan: whose layers lie where they do. places: requests that run at once.
        moved_s, ahead_s: as of `SweepPrices`.
    """

    predictor: Predictor
    plan: Candidate
    places: int
    moved_s: float = field(init=False)
    ahead_s: float = field(init=False)
    _fine: Sequence[int] = field(init=False)
    _coarse: Sequence[int] = field(init=False)
    _steps: Sequence[int] = field(init=False)
    _rows: dict[tuple[int, int], Candidate] = field(
        default_factory=dict[tuple[int, int], Candidate]
    )
    _timed: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    _between: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    _more: dict[tuple[int, int, int, bool], float] = field(
        default_factory=dict[tuple[int, int, int, bool], float]
    )

    def __post_init__(self) -> None:
        self.moved_s = self.predictor.moved_s(self.plan)
        streamed = self.plan.streamed - self.plan.on_disk
        self.ahead_s = self.moved_s / streamed if streamed > 0 else 0.0  # a layer
        self._fine, self._coarse = _numbers(self.places, _FINE), _numbers(self.places, _COARSE)
        self._steps = _numbers_by_octave(self.room(0, 0))

    def seconds(self, here: int, there: int, read: Sequence[int]) -> float:
        """Of one that reads so many tokens of prompts in each home; none: it only decodes."""
        seconds, tokens = self._decoding_s(here, there), sum(read)
        if not tokens:
            return seconds
        for home, part in enumerate(read):
            if part:  # as one for each home, by what it reads
                seconds += part / tokens * self._reading_s(here, there, tokens, home > 0)
        return seconds

    def tokens_of_hosted(self, here: int, there: int, *, reads: bool) -> float:
        """Of each row on the host, that one gives in the mean."""
        layers = self.predictor.num_layers
        if reads:  # a sweep beside which cohorts take turns, as beside rows
            return 1 / self._with(max(here, 1), there).sweeps_beside_prompts(layers)
        sweeps = self._with(here, there).sweeps_per_hosted_token(layers)
        return 1 / (sweeps + layers * self._by_turns(here, there))

    def _by_turns(self, here: int, there: int) -> bool:
        """Whether cohorts alone take turns, each in a sweep that moves all weights; those of layers
        that are all resident end as soon together as in sweeps that wait for one.
        """
        turns = self.plan.num_cohorts > 1 and not self.plan.halves
        return turns and not here and there > 1 and self.moved_s > 0

    def waits_of_hosted(self, there: int) -> float:
        """Tokens of the others that pass, in the mean, until one that comes to the host decodes:
        until a cohort is at its end that it may join; two take turns, or begin together.
        """
        plan = self.plan
        if not plan.has_cohorts or there < plan.num_cohorts:
            return 0.0
        return 1 / 2 if plan.halves else 1 / 2 / plan.num_cohorts

    def room(self, here: int, there: int) -> int:
        """Tokens of prompts that one has room for beside them."""
        return self.predictor.pace.room(self._with(here, there))

    def _with(self, here: int, there: int) -> Candidate:
        """The plan with those rows alone."""
        found = self._rows.get((here, there))
        if found is None:
            found = self._rows[here, there] = self._made(here, there)
        return found

    def _made(self, here: int, there: int) -> Candidate:
        plan = self.plan
        if not (here or there):
            return plan.between_tokens()
        rows = plan._replace(device_rows=here, host_rows=there)
        if not plan.has_cohorts or plan.halves:
            return rows
        if not here:
            return rows.hosted()
        return rows if there else rows._replace(strategy="gpu-only", passes=0)

    def _decoding_s(self, here: int, there: int) -> float:
        found = self._between.get((here, there))
        if found is None:
            found = sum(
                one * other * self._decode_s(device, host)
                for device, one in _around(self._fine, here)
                for host, other in _around(self._fine, there)
            )
            if self._by_turns(here, there):
                found = max(self.moved_s, found / 2)  # the other's attention is under way
            self._between[here, there] = found
        return found

    def _decode_s(self, here: int, there: int) -> float:
        if not (here or there):
            return 0.0
        found = self._timed.get((here, there))
        if found is None:
            found = self._timed[here, there] = self.predictor.sweep_s(self._with(here, there))
        return found

    def _reading_s(self, here: int, there: int, tokens: int, hosted: bool) -> float:
        """What prompts add to a sweep, by all tokens of its step."""
        device, host = _nearest(self._coarse, here), _nearest(self._coarse, there)
        step = tokens + self._beside(here, there)
        parts = _around(self._steps, step)
        return sum(part * self._more_s(device, host, step, hosted) for step, part in parts)

    def _beside(self, here: int, there: int) -> int:
        return self.room(0, 0) - self.room(here, there)

    def _more_s(self, here: int, there: int, step: int, hosted: bool) -> float:
        key = here, there, step, hosted
        found = self._more.get(key)
        if found is None:
            rows, tokens = self._with(here, there), max(1, step - self._beside(here, there))
            seconds = self.predictor.sweep_s(rows, tokens, hosted=hosted)
            found = max(0.0, seconds - self._decode_s(here, there))
            if rows.halves:  # of each token's sweeps one reads by itself
                every = rows.sweeps_beside_prompts(self.predictor.num_layers)
                found += (self._more_s(0, 0, tokens, hosted) - seconds) / every
            self._more[key] = found
        return found


def _numbers_by_octave(most: int) -> list[int]:
    """From 1 to the most."""
    found, one = {most}, 1
    while one < most:
        found.update(one + one * part // _OCTAVE for part in range(_OCTAVE))
        one *= 2
    return sorted(number for number in found if number <= most)


def _numbers(most: int, factor: float) -> list[int]:
    """From 0 and 1 to the most."""
    found = [0, 1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * factor))))
    return found


def _around(numbers: Sequence[int], number: int) -> list[tuple[int, float]]:
    """The one below it and the one above it, by their weights."""
    place = bisect_left(numbers, number)
    above = numbers[place]
    if above == number:
        return [(above, 1.0)]
    below = numbers[place - 1]
    part = (number - below) / (above - below)
    return [(below, 1 - part), (above, part)]


def _nearest(numbers: Sequence[int], number: int) -> int:
    """By their ratio; 0 of none only."""
    place = bisect_left(numbers, number)
    above = numbers[place]
    if above == number or place < 2:
        return above
    below = numbers[place - 1]
    return below if number * number < below * above else above
