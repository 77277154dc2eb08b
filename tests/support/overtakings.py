"""How often a request is overtaken by others of a higher priority that came later (invariant 6)."""

from dataclasses import dataclass, field

from tests.support.engines import TestEngine

from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.sequence import Sequence


def most_ends(config: SchedulerConfig, higher: int) -> float:
    """Requests that came later, of `higher` priorities above, which may run and end before somebody
    has a token: those after which it is raised, each time, and those that had rows by then.
    """
    ends = higher * (config.most_overtaken + config.max_num_seqs)
    # by the clock of tests, which goes on by a second whenever the order of prompts is asked for
    return ends + 4 * (config.ttft_bound_s or 0.0)


@dataclass(slots=True)
class OvertakingWatch:
    """Counts, for whoever has a row and the first without one of each priority, requests that came
    later, had a row and a higher priority, and have ended since it last had a token.

    Priorities are the requests' own: what the scheduler makes of them is its affair.
    """

    engine: TestEngine
    longest: int = 0
    ended: int = 0
    _watched: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    _ran: dict[str, Sequence] = field(default_factory=dict[str, Sequence])
    _priorities: set[int] = field(default_factory=set[int])

    def look(self) -> None:
        """After a step of the engine."""
        scheduler = self.engine.scheduler
        alive = _alive(scheduler)
        self._priorities |= {each.request.priority for each in alive.values()}
        ended = [each for name, each in self._ran.items() if name not in alive]
        self.ended += len(ended)
        watched: dict[str, tuple[int, int]] = {}
        for each in _watched(scheduler, alive):
            tokens = _num_tokens(scheduler, each)
            before, count = self._watched.get(each.request_id, (tokens, 0))
            count = (
                count + sum(_overtakes(other, each) for other in ended) if before == tokens else 0
            )
            self._check(each, count)
            watched[each.request_id] = (tokens, count)
        self._watched = watched
        ran = {n: s for n, s in alive.items() if s.row is not None or n in self._ran}
        self._ran = ran

    def _check(self, sequence: Sequence, count: int) -> None:
        self.longest = max(self.longest, count)
        higher = sum(each < sequence.request.priority for each in self._priorities)
        most = most_ends(self.engine.scheduler.config, higher)
        assert count <= most, f"{sequence.request_id} was overtaken {count} times"


def _overtakes(other: Sequence, behind: Sequence) -> bool:
    """Whether a request that ends came later than another and has a higher priority."""
    higher = other.request.priority < behind.request.priority
    return higher and other.arrival > behind.arrival


def _alive(scheduler: Scheduler) -> dict[str, Sequence]:
    found = {name: scheduler.running.find(name) for name in scheduler.running.ids()}
    return {name: sequence for name, sequence in found.items() if sequence is not None}


def _watched(scheduler: Scheduler, alive: dict[str, Sequence]) -> list[Sequence]:
    """Whoever has a row, and the first of each priority that has none."""
    seated = [each for each in alive.values() if each.row is not None]
    waiting = [each for each in alive.values() if each.row is None]
    by_arrival = sorted(waiting, key=lambda each: -each.arrival)
    first = {each.request.priority: each for each in by_arrival}
    return seated + list(first.values())


def _num_tokens(scheduler: Scheduler, sequence: Sequence) -> int:
    row = sequence.row
    return len(sequence.tokens) if row is None else int(scheduler.rows.known[row])
