"""The frontier of retired steps, whatever the order in which they retire."""

import random

from tandem.scheduler.in_flight import Flight, StepInFlight


def flight_of(steps: int) -> Flight:
    flight = Flight()
    assert [flight.new_step() for _ in range(steps)] == list(range(steps))
    return flight


def test_the_frontier_waits_for_the_oldest() -> None:
    flight = flight_of(4)
    assert flight.retire(2) is None
    assert flight.retire(1) is None
    assert flight.retired == -1
    assert flight.retire(0) == 2
    assert flight.busy
    assert flight.retire(3) == 3
    assert not flight.busy


def test_the_frontier_never_passes_a_step_that_runs() -> None:
    rng = random.Random(0)
    for _ in range(50):
        flight, left = flight_of(30), set(range(30))
        for step in rng.sample(range(30), 30):
            left.discard(step)
            reached = flight.retire(step)
            frontier = min(left, default=30) - 1
            assert flight.retired == frontier
            assert reached == (frontier if step <= frontier else None)
        assert not flight.busy


def test_a_step_is_settled_when_its_last_event_has_come() -> None:
    flight = flight_of(1)
    flight.steps[0] = StepInFlight(0, due={("done", 0), ("tokens0", 1)})
    flight.settle(0, "done", 0)
    assert flight.num_unsettled == 1
    flight.settle(0, "tokens0", 1)
    assert flight.num_unsettled == 0
    assert 0 not in flight.steps
    flight.settle(0, "done", 0)  # late news of a forgotten step change nothing
