"""Programs of paced benchmarks executed exactly, tokens compared with a plain model's."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.fakes.paced import TINY as MODEL
from tests.support.mutations import drop_waits, is_op

from tandem.bench.online.arrivals import Arrivals
from tandem.bench.online.bed import Bed, virtual_bed
from tandem.bench.online.cell import Load, OnlineCell
from tandem.bench.online.closed_loop import ClosedLoop
from tandem.bench.online.engine import build_engine
from tandem.bench.online.plans import Planned
from tandem.bench.online.requests import SHAPES
from tandem.bench.online.rows import describe, rows_of
from tandem.bench.online.suite import OnlineBench, run_online
from tandem.bench.replay.replay import Recorded, ReplayMismatchError, replay
from tandem.engine.stats import EngineStats
from tandem.plan.events import TokensSampled
from tandem.plan.program import OpKind, Part, StepProgram
from tandem.plan.strategy_names import STRATEGIES
from tandem.planner.answer import online_plan
from tandem.planner.policies import strategy_alone
from tandem.planner.search.search import Search
from tandem.runtime.paced.journal import Submitted, Told
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.replayed import ReplayError, ReplayExecutor
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ExpertSpec
from tandem.spec.tier import Tier

SMALL = load_hardware("small")
TRUTH = Perturbation(1, 0.3, 8, 0.02)


def cell_of(load: Load) -> OnlineCell:
    """Room for a few sequences on the accelerator and for more on the host."""
    card = replace(SMALL.accelerator, memory_bytes=80 << 20)
    hardware = replace(SMALL, accelerator=card, host=replace(SMALL.host, memory_bytes=4 << 20))
    return OnlineCell("tiny", MODEL, MODEL, load, hardware, TRUTH, 64)


def plan_of(cell: OnlineCell, bed: Bed, strategy: str) -> Planned:
    """A plan whose pools are too small for all that run, so that some are preempted or spill."""
    question = replace(bed.question, block_size=16)
    search = Search(question)
    option = search.choice(strategy_alone("ride-along"))
    assert option is not None
    hosted = strategy != "gpu-only"
    plan = replace(
        online_plan(search, option),
        strategy=strategy,
        device_blocks=14,
        host_blocks=20 if hosted else 0,
        max_num_seqs=8,
        kv_placement="auto",
        max_host_seqs=4 if hosted else 0,
        max_cohorts=2,
        max_cohort_rows=2,
        interposition_budget=cell.model.num_layers,
        max_join_wait_s=1e-4,
    )
    return Planned(strategy, question, option, plan)


@pytest.fixture(scope="module")
def cell() -> OnlineCell:
    return cell_of(Load(40, 24))


@pytest.fixture(scope="module")
def bed(cell: OnlineCell) -> Bed:
    return virtual_bed(cell)


def run_of(cell: OnlineCell, bed: Bed, strategy: str, steps: int) -> tuple[Recorded, EngineStats]:
    """The steady state's beginning, some steps of it, packed in several parts, and its end."""
    planned = plan_of(cell, bed, strategy)
    assert planned.plan is not None
    engine = build_engine(cell, bed, planned, bed.clock(), journaled=True)
    assert engine.journal is not None
    rows, plan = planned.counted_rows, planned.plan
    forward = engine.executor.fast_forward
    workload, most = cell.load.workload(SHAPES), plan.max_num_seqs
    loop = ClosedLoop(engine.core, workload, rows, most, plan.max_num_batched_tokens, forward)
    loop.fill()
    for _ in range(2):
        engine.journal.pack()
        for _ in range(steps):
            loop.step()
    stats = engine.core.stats()
    engine.core.close()
    return Recorded.of(strategy, engine, cell.model.num_layers), stats


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_programs_of_paced_runs_give_the_plain_models_tokens(
    cell: OnlineCell, bed: Bed, strategy: str
) -> None:
    run, stats = run_of(cell, bed, strategy, 30)
    found = replay(run, seed=5)
    assert found.programs > 40
    assert found.tokens >= 5 * found.requests
    assert found.ties == 0
    assert (stats.cohort_joins > 0) == (strategy not in ("gpu-only", "ride-along"))
    assert strategy != "gpu-only" or stats.preemptions > 0


def test_what_is_replayed_is_what_was_submitted(cell: OnlineCell, bed: Bed) -> None:
    run, stats = run_of(cell, bed, "asymmetric", 10)
    entries = list(run.journal.entries())
    steps = [each.program.step_id for each in entries if isinstance(each, Submitted)]
    assert steps == list(range(len(steps)))
    assert stats.num_steps <= len(steps) == replay(run).programs
    whole = sum(
        len(event.token_ids)
        for entry in entries
        if isinstance(entry, Told)
        for event in entry.events
        if isinstance(event, TokensSampled)
    )
    assert replay(run).tokens == whole


def forget_a_wait(program: StepProgram) -> StepProgram:
    """What the host attends with is copied there before the accelerator has it."""
    mutate = drop_waits(is_op(OpKind.COPY, Part.QKV))
    return replace(program, template=mutate(program.template))


def use_a_block_again(program: StepProgram) -> StepProgram:
    """Rows on the accelerator write all keys and values into one block."""
    lanes = [slot for slot in program.lanes if Tier.DEVICE in slot.binding.append]
    for slot in lanes:
        slots = slot.binding.append[Tier.DEVICE].slots
        slots[:] %= 16
    return program


def write_one_key_elsewhere(program: StepProgram) -> StepProgram:
    """In one program, of one token, to where its neighbour's key lies."""
    for slot in program.lanes:
        if program.step_id in (20, 21) and Tier.DEVICE in slot.binding.append:
            slots = slot.binding.append[Tier.DEVICE].slots
            slots[0] ^= 1
    return program


def swap_two_rows(program: StepProgram) -> StepProgram:
    """In one program two rows are given each other's last tokens."""
    for slot in program.lanes:
        if program.step_id in (20, 21) and len(slot.binding.rows) > 1:
            rows = slot.binding.token_rows.copy()
            rows[:2] = rows[1::-1]
            lane = slot._replace(binding=replace(slot.binding, token_rows=rows))
            return replace(program, lanes=(lane, *program.lanes[1:]))
    return program


FAULTS = [forget_a_wait, use_a_block_again, write_one_key_elsewhere, swap_two_rows]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_programs_is_found(
    cell: OnlineCell,
    bed: Bed,
    fault: Callable[[StepProgram], StepProgram],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, _ = run_of(cell, bed, "asymmetric", 20)
    follow = ReplayExecutor.replay

    def wrong(self: ReplayExecutor, program: StepProgram, joined: Mapping[int, bool]) -> None:
        follow(self, fault(program), joined)

    monkeypatch.setattr(ReplayExecutor, "replay", wrong)
    with pytest.raises((ReplayError, ReplayMismatchError)):
        replay(run)


def test_a_prompt_that_was_not_read_as_it_was_asked_is_found(cell: OnlineCell, bed: Bed) -> None:
    run, _ = run_of(cell, bed, "gpu-only", 5)
    name, prompt = next(iter(run.journal.prompts.items()))
    run.journal.prompts[name] = (*prompt[:7], prompt[7] ^ 1, *prompt[8:])
    with pytest.raises(ReplayMismatchError, match="is right: this is a fault of Tandem's"):
        replay(run)


def test_the_bench_says_what_it_has_replayed() -> None:
    bench = OnlineBench(
        ("rendezvous",), pairs=1, window_s=0.01, virtual=True, arrivals=Arrivals((0.5,), 6)
    )
    (outcome,) = run_online(bench, [cell_of(Load(20, 12))], lambda _: None)
    counts = {
        (row.unit, row.variant): row.value
        for row in rows_of(outcome)
        if row.metric.startswith(("replayed", "tokens equal"))
    }
    for policy, found in outcome.replays.items():
        assert counts.pop(("programs", f"virtual {policy}")) == found.programs > 20
        assert counts.pop(("tokens", f"virtual {policy}")) == found.tokens > 100
    assert not counts
    assert set(outcome.replays) == {"auto", "gpu-only", "rendezvous"}
    (line,) = [line for line in describe(outcome) if "replayed exactly" in line]
    assert "all as a plain model's (0 ties" in line
    alone = replace(bench, arrivals=Arrivals())
    (closed,) = run_online(alone, [cell_of(Load(20, 12))], lambda _: None)
    assert all(
        found.requests == closed.replays[policy].requests + 6  # those that came over time
        for policy, found in outcome.replays.items()
    )
    (none,) = run_online(replace(alone, replays=False), [cell_of(Load(20, 12))], lambda _: None)
    assert not none.replays
    assert none.windows["auto"] == closed.windows["auto"]
    (line,) = [line for line in describe(none) if "replayed exactly" in line]
    assert "left out by --no-replay" in line


def test_a_mixture_is_measured_but_not_replayed() -> None:
    mixture = replace(MODEL, experts=ExpertSpec(count=4, per_token=2, intermediate_size=32))
    cell = replace(cell_of(Load(20, 12)), whole=mixture, model=mixture)
    bench = OnlineBench(("gpu-only",), pairs=1, window_s=0.01, virtual=True)
    (outcome,) = run_online(bench, [cell], lambda _: None)
    assert not outcome.replays
    (line,) = [line for line in describe(outcome) if "replayed exactly" in line]
    assert "a mixture's cannot be yet" in line
