"""Programs of paced benchmarks executed exactly, tokens compared with a plain engine's."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.fakes.paced import TINY as MODEL
from tests.support.mutations import drop_waits, is_op

from tandem.bench.online.bed import Bed, virtual_bed
from tandem.bench.online.cell import Load, OnlineCell
from tandem.bench.online.plans import Planned
from tandem.bench.online.replay import (
    TIE_MARGIN,
    Expected,
    ReplayMismatchError,
    equal_tokens,
    replay,
)
from tandem.bench.online.rows import describe, rows_of
from tandem.bench.online.suite import OnlineBench, run_online
from tandem.plan.program import OpKind, Part, StepProgram
from tandem.plan.strategy_names import STRATEGIES
from tandem.planner.answer import online_plan
from tandem.planner.policies import strategy_alone
from tandem.planner.search.search import Search
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.replayed import ReplayError, ReplayExecutor
from tandem.spec.errors import ConfigError
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


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_programs_of_paced_runs_give_the_plain_engines_tokens(
    cell: OnlineCell, bed: Bed, strategy: str
) -> None:
    found = replay(cell, bed, plan_of(cell, bed, strategy), steps=20, seed=5)
    assert found.programs > 40
    assert found.tokens >= 5 * found.requests
    assert found.ties == 0
    assert (found.joins > 0) == (strategy not in ("gpu-only", "ride-along"))
    assert strategy != "gpu-only" or found.preemptions > 0


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


@pytest.mark.parametrize("fault", [forget_a_wait, use_a_block_again])
def test_what_is_wrong_with_programs_is_found(
    cell: OnlineCell,
    bed: Bed,
    fault: Callable[[StepProgram], StepProgram],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = plan_of(cell, bed, "asymmetric")
    follow = ReplayExecutor.replay

    def wrong(self: ReplayExecutor, program: StepProgram, joined: Mapping[int, bool]) -> None:
        follow(self, fault(program), joined)

    monkeypatch.setattr(ReplayExecutor, "replay", wrong)
    with pytest.raises((ReplayError, ReplayMismatchError)):
        replay(cell, bed, planned, steps=10)


def test_tokens_count_as_equal_up_to_a_tie() -> None:
    expected = Expected([5, 6, 7, 8], [0.3, TIE_MARGIN / 2, 0.3, 0.3])
    assert equal_tokens("auto", "0", [5, 6, 7, 8], expected) == 4
    assert equal_tokens("auto", "0", [5, 9, 7, 8], expected) == 1
    for wrong, place in (([5, 6, 9, 8], 2), ([5, 6, 7], 3)):
        with pytest.raises(ReplayMismatchError, match=f"number {place} is wrong"):
            equal_tokens("auto", "0", wrong, expected)


def test_the_bench_says_what_it_has_replayed() -> None:
    bench = OnlineBench(("rendezvous",), pairs=1, window_s=0.01, virtual=True, replay_steps=10)
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
    (longer,) = run_online(replace(bench, replay_steps=40), [cell_of(Load(20, 12))], lambda _: None)
    assert all(
        found.programs > outcome.replays[policy].programs
        for policy, found in longer.replays.items()
    )
    (line,) = [line for line in describe(outcome) if "replayed exactly" in line]
    assert "all as a plain engine's (0 requests after a tie)" in line


def test_a_mixture_is_refused_before_anything_is_measured() -> None:
    """Not after the windows of a cell, which may take an hour."""
    mixture = replace(MODEL, experts=ExpertSpec(count=4, per_token=2, intermediate_size=32))
    cell = replace(cell_of(Load(20, 12)), whole=mixture, model=mixture)
    bench = OnlineBench(("rendezvous",), pairs=1, window_s=0.01, virtual=True, replay_steps=10)
    said: list[str] = []
    with pytest.raises(ConfigError, match="mixtures of experts cannot be replayed yet"):
        run_online(bench, [cell_of(Load(20, 12)), cell], said.append)
    assert not said
