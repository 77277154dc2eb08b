"""Skipping steps changes nothing, nor layers; asking for time in small pieces neither."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled
from tests.unit.simulator.setups import (
    CASES,
    LAYERS,
    Case,
    in_steps,
    planned,
    serve,
    workload,
)

from tandem.planner.fluid.groups import Group, Schedule
from tandem.planner.fluid.queues import FluidQueues, Span, Submission, Work

LENGTHS = ("100-300", "5-60"), ("64", "150")
OF_A_TOKEN = "1", "30-90"
"""Prompts that sweeps read as they decode a row."""
PLANS = {
    (name, lengths): planned(case, *lengths, requests=12)
    for name, case in CASES.items()
    for lengths in LENGTHS
} | {
    (name, OF_A_TOKEN): planned(CASES[name], *OF_A_TOKEN, requests=12)
    for name in ("gpu-only", "streamed", "ride-along", "preempting")
}
COHORTS = {
    "rendezvous-ahead": Case("rendezvous-ahead", 4, 4),
    "asymmetric": Case("asymmetric", 4, 4, passes=LAYERS),
    "symmetric": Case("symmetric", 0, 8, passes=LAYERS),
}
LITTLE_MEMORY = Case("ride-along", 6, 4, device_blocks=14, host_blocks=20)
HYBRIDS = {
    **{name: planned(case, *LENGTHS[0], requests=12) for name, case in COHORTS.items()},
    **{name: in_steps(Case("ride-along", 4, 4), name) for name in ("auto", "neo", "apex")},
    "neo, most rest": in_steps(Case("ride-along", 12, 2), "neo"),
    "neo-published, most rest": in_steps(Case("ride-along", 12, 2), "neo-published"),
    "apex-published, most rest": in_steps(Case("ride-along", 12, 2), "apex-published"),
    "neo, little memory": in_steps(LITTLE_MEMORY, "neo"),
    "auto, little memory": in_steps(LITTLE_MEMORY, "auto"),
    "auto, windows": in_steps(Case("ride-along", 4, 4, gemma=True), "auto"),
}
"""Requests on the host that cross sweeps, or whose steps are chosen one by one."""


@settings(max_examples=scaled(12))
@given(
    key=st.sampled_from(list(PLANS)),
    rate=st.sampled_from([None, 3.0, 30.0, 300.0]),
    seed=st.integers(0, 1000),
    requests=st.integers(1, 8),
    ttft_bound_s=st.sampled_from([None, None, 1e-3, 0.1]),
)
@example(key=("gpu-only", ("64", "150")), rate=None, seed=0, requests=12, ttft_bound_s=None)
@example(key=("ride-along", ("64", "150")), rate=30.0, seed=0, requests=12, ttft_bound_s=None)
@example(key=("spilling", ("64", "150")), rate=None, seed=3, requests=12, ttft_bound_s=None)
@example(key=("windows", ("100-300", "5-60")), rate=None, seed=3, requests=9, ttft_bound_s=None)
@example(key=("streamed", ("64", "150")), rate=3.0, seed=3, requests=9, ttft_bound_s=None)
@example(key=("gpu-only", OF_A_TOKEN), rate=None, seed=0, requests=12, ttft_bound_s=None)
@example(key=("gpu-only", OF_A_TOKEN), rate=30.0, seed=0, requests=20, ttft_bound_s=None)
@example(key=("streamed", OF_A_TOKEN), rate=3.0, seed=1, requests=8, ttft_bound_s=None)
@example(key=("ride-along", OF_A_TOKEN), rate=30.0, seed=0, requests=12, ttft_bound_s=0.1)
@example(key=("preempting", OF_A_TOKEN), rate=300.0, seed=2, requests=12, ttft_bound_s=None)
# more requests than rows: in most steps one ends, and another begins
@example(key=("gpu-only", ("100-300", "5-60")), rate=None, seed=4, requests=40, ttft_bound_s=None)
@example(key=("windows", ("100-300", "5-60")), rate=300.0, seed=5, requests=30, ttft_bound_s=None)
@example(key=("spilling", ("100-300", "5-60")), rate=None, seed=6, requests=30, ttft_bound_s=None)
def test_skipped_steps_leave_every_moment_and_every_token_as_they_are(
    key: tuple[str, tuple[str, str]],
    rate: float | None,
    seed: int,
    requests: int,
    ttft_bound_s: float | None,
) -> None:
    plan = PLANS[key]
    wanted = workload(*key[1], requests, rate, seed)
    spans: list[Span] = []  # whoever wants them gets every group: no layer is left out
    through = serve(plan, wanted, on_span=spans.append, ttft_bound_s=ttft_bound_s)
    skipped = serve(plan, wanted, skip=True, ttft_bound_s=ttft_bound_s)
    # to the bit: the same sums, done in the same order
    assert skipped.record == through.record
    assert replace(skipped.outcome, skipped_steps=0) == through.outcome
    skipped.machine.scheduler.check()
    alike = key[0] in ("gpu-only", "windows", "streamed", "ride-along")
    if alike and key[1] == ("64", "150") and ttft_bound_s is None:
        assert skipped.outcome.skipped_steps > 0.3 * skipped.outcome.steps


@settings(max_examples=scaled(16))
@given(
    name=st.sampled_from(list(HYBRIDS)),
    generate=st.sampled_from(["5-60", "150"]),
    rate=st.sampled_from([None, 30.0]),
    seed=st.integers(0, 1000),
    requests=st.integers(1, 16),
    bounds_s=st.sampled_from([(None, None), (None, 0.1), (5e-3, None), (1e-4, 1e-3)]),
)
@example("symmetric", "5-60", None, 0, 10, (None, None))
@example("asymmetric", "5-60", 30.0, 1, 10, (None, None))
@example("neo", "5-60", None, 2, 10, (None, None))
@example("auto", "5-60", 300.0, 3, 10, (None, None))
@example("neo", "150", None, 4, 12, (None, None))
@example("neo, most rest", "150", None, 0, 20, (None, None))
@example("neo, most rest", "5-60", 30.0, 5, 20, (5e-3, None))
@example("neo-published, most rest", "150", None, 1, 20, (None, None))
@example("apex-published, most rest", "150", None, 1, 20, (None, None))
@example("auto", "150", None, 6, 12, (None, None))
@example("auto", "150", 30.0, 7, 16, (5e-3, None))
@example("auto, windows", "150", None, 8, 12, (None, None))
@example("auto, little memory", "150", None, 9, 16, (None, None))
@example("neo, little memory", "150", None, 10, 16, (None, None))
# who comes in a run that is skipped has come when it came, not when the run ended
@example("apex", "5-60", 30.0, 191, 16, (1e-4, 1e-3))
@example("neo", "150", 30.0, 12, 16, (1e-4, 1e-3))
def test_nor_where_steps_are_chosen_or_requests_cross_sweeps(
    name: str,
    generate: str,
    rate: float | None,
    seed: int,
    requests: int,
    bounds_s: tuple[float | None, float | None],
) -> None:
    """Bounds on the time per token and on the first token's."""
    tpot_bound_s, ttft_bound_s = bounds_s
    plan, wanted = HYBRIDS[name], workload(LENGTHS[0][0], generate, requests, rate, seed)
    plan = replace(plan, question=replace(plan.question, tpot_bound_s=tpot_bound_s))
    spans: list[Span] = []
    through = serve(plan, wanted, on_span=spans.append, ttft_bound_s=ttft_bound_s)
    skipped = serve(plan, wanted, skip=True, ttft_bound_s=ttft_bound_s)
    assert skipped.record == through.record
    assert replace(skipped.outcome, skipped_steps=0) == through.outcome
    skipped.machine.scheduler.check()
    long = generate == "150" and rate is None and requests >= 12
    if long and bounds_s == (None, None) and name in ("neo, most rest", "auto"):
        assert skipped.outcome.skipped_steps > 0.2 * skipped.outcome.steps


def chain(lengths: list[list[Work]], crossed: bool) -> Submission:
    """Groups on every queue; if `crossed`, each waits for the one before it on the queue before."""
    groups: list[Group] = []
    for queue, works in enumerate(lengths):
        for place in range(len(works)):
            awaited = min(place, len(lengths[queue - 1])) if crossed and queue else 0
            groups.append(Group(queue, place + 1, (), ((queue - 1, awaited),) if awaited else ()))
    every = [work for queue in lengths for work in queue]
    return Submission(
        Schedule((), tuple(groups)), lambda _: every, reported=frozenset(range(len(every)))
    )


WORKS = st.builds(
    Work, st.floats(0.0, 2.0), st.sampled_from([0.0, 3.0, 8.0]), st.sampled_from([0.0, 0.5, 1.0])
)


@settings(max_examples=scaled(50))
@given(
    lengths=st.lists(st.lists(WORKS, max_size=4), min_size=5, max_size=5),
    crossed=st.booleans(),
    pieces=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=5),
)
def test_time_asked_for_in_pieces_is_the_same_time(
    lengths: list[list[Work]], crossed: bool, pieces: list[float]
) -> None:
    count = sum(map(len, lengths))
    whole, parts = FluidQueues(10.0), FluidQueues(10.0)
    whole.submit(chain(lengths, crossed))
    parts.submit(chain(lengths, crossed))
    expected: list[tuple[float, int]] = []
    while len(expected) < count:
        expected += [(whole.now_s, ended.group) for ended in whole.advance()]
    found: list[tuple[float, int]] = []
    until_s, turn = 0.0, 0
    while len(found) < count:
        ended = parts.advance(until_s)
        found += [(parts.now_s, end.group) for end in ended]
        if not ended:
            until_s += pieces[turn % len(pieces)]
            turn += 1
    assert sorted(found) == sorted((now_s, group) for now_s, group in found)
    assert [group for _, group in found] == [group for _, group in expected]
    assert (parts.now_s, parts.busy_s) == (whole.now_s, whole.busy_s)
    assert parts.hidden_s == whole.hidden_s
