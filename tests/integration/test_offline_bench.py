"""The offline bench end to end on a small cell: whole jobs in virtual time, beside their bound."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.test_block_adapting import mistold

from tandem.bench.offline import ablations, suite
from tandem.bench.offline.breakdown import Breakdown
from tandem.bench.offline.cell import CellName, OfflineCell, make_cell
from tandem.bench.offline.cut_ratios import CUT, cut_ratios, describe_ratios, ratio_rows
from tandem.bench.offline.few_bits import FewBitsOutcome, run_few_bits
from tandem.bench.offline.few_bits import describe as describe_few_bits
from tandem.bench.offline.few_bits import rows_of as few_bits_rows
from tandem.bench.offline.grid import GRID
from tandem.bench.offline.held_out import CORRECTED, FIXED, INFORMED, run_held_out
from tandem.bench.offline.held_out import describe as describe_held_out
from tandem.bench.offline.held_out import rows_of as held_out_rows
from tandem.bench.offline.job import Executed, execute
from tandem.bench.offline.plans import ask
from tandem.bench.offline.plot import plot_offline
from tandem.bench.offline.renewed_job import RenewedJob, execute_renewed
from tandem.bench.offline.rows import describe, rows_of
from tandem.bench.offline.selection import CELLS, QUICK_CELLS, check_room, choose_cells
from tandem.bench.offline.split import run_splits
from tandem.bench.offline.suite import OfflineOutcome, run_offline
from tandem.bench.online.cell import Load
from tandem.bench.online.selection import truth_of
from tandem.bench.records import BenchRecord
from tandem.cli import bench_offline
from tandem.kernels import native
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.policies import find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.scheduler.blocks.adapting import REVIEWED_EVERY
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType, KVType
from tandem.spec.quantized_maps import uniform_formats

NAMED = CellName("t4", "g4dn.4xlarge", "opt-6.7b", Load(256, 12), 40)
POLICIES = ("zero-inference-stream", "flexgen", "lm-offload", "kvpr", "park-egger")


def outcome_of(truth: Perturbation) -> OfflineOutcome:
    (found,) = run_offline(POLICIES, [make_cell(NAMED, 4, truth)], lambda _: None)
    return found


@pytest.fixture(scope="module")
def outcome() -> OfflineOutcome:
    return outcome_of(truth_of(1, plain=False))


def test_every_policy_executes_the_whole_job_within_the_bound(outcome: OfflineOutcome) -> None:
    wanted = sum(shape.generated_tokens for shape in outcome.cell.workload.requests)
    ceiling = outcome.planned.ceiling
    assert ceiling is not None
    assert set(outcome.executed) == {"auto", *POLICIES}
    for job in outcome.planned.jobs:
        executed = outcome.executed[job.policy]
        assert job.option is not None
        assert executed.tokens == wanted
        assert executed.wall_s == pytest.approx(executed.prompts_s + executed.passes_s)
        assert executed.tokens_per_s <= ceiling.tokens_per_s
        assert job.option.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-6)
        assert executed.report.brought_bytes > 0


@pytest.fixture(scope="module")
def few_bits() -> FewBitsOutcome:
    (found,) = run_few_bits([make_cell(NAMED, 4, truth_of(1, plain=False))], lambda _: None)
    return found


def test_plans_in_few_bits_are_executed_as_predicted_and_within_their_bounds(
    few_bits: FewBitsOutcome, outcome: OfflineOutcome
) -> None:
    wanted = sum(shape.generated_tokens for shape in few_bits.cell.workload.requests)
    for run in few_bits.runs:
        assert run.executed.tokens == wanted
        assert run.most_per_s is not None
        assert run.executed.tokens_per_s <= run.most_per_s * 1.02  # jitter of the truth
        assert run.option.tokens_per_s <= run.most_per_s * (1 + 1e-6)
        pass_s = run.option.prediction.rates.pass_s
        assert pass_s == pytest.approx(run.executed.pass_s, rel=0.25), run.name
    found = {run.name: run for run in few_bits.runs}
    for policy in ("flexgen", "lm-offload", "auto"):
        plain, kv = found[f"{policy}, 16 bits"], found[f"{policy}, KV in 4 bits"]
        assert plain.chosen == "no weights"
        assert plain.executed.wall_s == outcome.executed[policy].wall_s
        kept = "all KV" if policy == "auto" else "KV on the host"
        assert kv.chosen == f"no weights and {kept}"
        assert kv.executed.tokens_per_s > 1.05 * plain.executed.tokens_per_s
    best, narrower = (found[f"{name}, KV in 4 bits"] for name in ("auto", "lm-offload"))
    assert best.executed.tokens_per_s > narrower.executed.tokens_per_s
    # four fifths of the job are prompts, which KV's type does not shorten
    assert best.executed.passes_s < 0.95 * narrower.executed.passes_s
    for allowed in ("weights", "KV", "weights and KV"):  # each tensor by itself
        rates = [
            found[f"{policy}, {allowed} in 4 bits"].option.tokens_per_s
            for policy in ("flexgen", "lm-offload")
        ]
        assert rates[1] >= rates[0]


def test_kv_in_four_bits_and_recomputation_each_help_where_kv_is_streamed(
    few_bits: FewBitsOutcome,
) -> None:
    """KVPR's figure 8."""
    rates = {
        (each.option.candidate.host_kv, "kvpr with " in each.name): each.executed.tokens_per_s
        for each in few_bits.runs
        if each.name.startswith("kvpr")
    }
    assert len(rates) == 4
    assert rates[None, True] > rates[None, False]
    assert rates[CodeType.INT4, False] > rates[None, False]
    assert rates[CodeType.INT4, True] >= 0.98 * rates[CodeType.INT4, False]


def test_rows_and_lines_of_few_bits_name_what_was_run(few_bits: FewBitsOutcome) -> None:
    rows = list(few_bits_rows(few_bits))
    assert len({(row.variant, row.metric) for row in rows}) == len(rows)
    assert all(row.variant.startswith("virtual ") for row in rows)
    assert {row.metric for row in rows if row.bound is None} == set()
    told = "\n".join(describe_few_bits(few_bits))
    for run in few_bits.runs:
        assert f"{run.name}: {run.executed.tokens_per_s:.1f} tokens/s" in told


def test_lm_offload_streams_layers_in_few_bits_and_is_executed_so() -> None:
    named = CellName("a10g", "kvpr", "opt-30b", Load(256, 64), 256)
    cell = make_cell(named, 8, truth_of(1, plain=False))
    question = ask(cell)
    maps = uniform_formats(cell.model, 4, None)
    precision = replace(question.precision, quantized=maps)
    search = OfflineSearch(replace(question, precision=precision))
    found: dict[str, tuple[BlockOption, Executed]] = {}
    for name in ("flexgen", "lm-offload"):
        policy = find_offline_policy(name)
        option = search.best(policy)
        assert option is not None
        plan = offline_plan(search, option.candidate)
        file = offline_plan_file(cell.model_name, search.question, plan, "int4")
        found[name] = option, execute(cell, file)
    option, executed = found["lm-offload"]
    assert option.candidate.quantized == "streamed"
    assert option.candidate.streamed
    assert executed.tokens_per_s > 1.02 * found["flexgen"][1].tokens_per_s
    assert option.tokens_per_s == pytest.approx(executed.tokens_per_s, rel=0.1)


def test_one_batch_in_halves_keeps_cpu_and_link_busy_at_once() -> None:
    """As a whole it makes the CPU wait before and behind its attention in every layer.

    The link brings something all the time: what both have is what the memory gives. In the last of
    eight passes hardly any sequence is left.
    """
    named = CellName("a4000", "park-egger", "opt-13b", Load(512, 8), 192)
    cell = make_cell(named, 5, truth_of(1, plain=False))
    one, halves = run_splits(cell, ask(cell))
    assert (one.candidate.batches, halves.candidate.batches) == (1, 2)
    assert one.candidate.block_rows == halves.candidate.block_rows
    for run in (one, halves):
        assert run.candidate.streamed == 5
        assert run.candidate.streamed_rows
        assert run.candidate.cpu_rows
        assert run.executed.both_share <= min(run.executed.link_share, 1.0)
    assert one.executed.both_share > 0.75
    assert halves.executed.both_share > max(0.88, one.executed.both_share + 0.05)
    assert halves.executed.link_share > 0.99
    assert halves.executed.tokens_per_s > one.executed.tokens_per_s


def test_where_the_link_is_full_of_weights_nothing_is_divided(outcome: OfflineOutcome) -> None:
    named = CellName("a100-80", "server-genoa", "llama-3.1-70b", Load(64, 4), 16)
    cell = make_cell(named, 4, truth_of(1, plain=False))
    assert run_splits(cell, ask(cell)) == ()
    streamed = outcome.executed["zero-inference-stream"]  # bound by the link
    assert 0.95 < streamed.link_share <= 1.001
    assert streamed.both_share == 0.0  # nothing is attended on the CPU
    told = "\n".join(describe(outcome))
    assert f"queues work for {streamed.link_share:.0%} and CPU and link at once for 0%" in told


def test_the_link_s_share_by_bytes_is_near_its_queues_where_it_binds(
    outcome: OfflineOutcome,
) -> None:
    """Copies come one after the other, so that bytes over the rate are the time they took, but for
    what was on its way as passes began: layers in both slots, of which there are few passes.
    """
    streamed = outcome.executed["zero-inference-stream"]
    assert 0 < streamed.passes_bytes < streamed.report.brought_bytes
    rate = outcome.planned.question.hardware.link.h2d_bytes_per_s
    of_passes = streamed.passes_bytes / (rate * streamed.passes_s)
    (plan,) = [j.plan for j in outcome.planned.jobs if j.policy == "zero-inference-stream"]
    assert plan is not None
    ahead = 2 * plan.host.weights_bytes / 4 / streamed.passes_bytes
    assert 0.98 * streamed.link_share <= of_passes <= (1.02 + ahead) * streamed.link_share
    rows = {
        row.metric: row.value
        for row in rows_of(outcome)
        if row.variant == "virtual zero-inference-stream"
    }
    assert rows["link busy by bytes, of passes"] == of_passes
    whole = streamed.report.brought_bytes / (rate * streamed.wall_s)
    assert rows["link to the accelerator busy"] == whole


def test_cells_are_drawn(outcome: OfflineOutcome, tmp_path: Path) -> None:
    pictures = tmp_path / "one.png", tmp_path / "three.png"
    plot_offline([outcome], pictures[0])
    plot_offline([outcome] * 3, pictures[1])
    sizes = [picture.stat().st_size for picture in pictures]
    assert 10_000 < sizes[0] < sizes[1]
    with pytest.raises(ConfigError, match="cannot write"):
        plot_offline([outcome], tmp_path / "nowhere" / "one.png")


def test_predictions_are_near_what_is_executed(outcome: OfflineOutcome) -> None:
    for job in outcome.planned.jobs:
        assert job.option is not None
        executed, rates = outcome.executed[job.policy], job.option.prediction.rates
        assert rates.pass_s == pytest.approx(executed.pass_s, rel=0.25), job.policy


def test_equal_plans_share_their_run_and_all_figures_say_virtual(outcome: OfflineOutcome) -> None:
    plans = {job.policy: job.plan for job in outcome.planned.jobs}
    assert plans["flexgen"] == plans["lm-offload"]
    assert outcome.executed["flexgen"] is outcome.executed["lm-offload"]
    rows = rows_of(outcome)
    executed = [row for row in rows if row.variant.startswith("virtual ")]
    assert {row.metric for row in executed if row.bound is None} == set()
    assert executed == list(rows)
    told = "\n".join(describe(outcome))
    assert "no plan exceeds" in told
    assert all(policy in told for policy in plans)


def test_the_truth_decides_and_is_repeatable(outcome: OfflineOutcome) -> None:
    again, other = outcome_of(truth_of(1, plain=False)), outcome_of(truth_of(2, plain=False))
    for policy in POLICIES:
        assert again.executed[policy].wall_s == outcome.executed[policy].wall_s
        assert other.executed[policy].wall_s != outcome.executed[policy].wall_s


def test_what_is_left_to_the_cpu_is_executed_as_fast_as_predicted() -> None:
    """A job so small that all of the link's time is for weights; by the truth of another seed."""
    named = CellName("a100-80", "server-genoa", "llama-3.1-70b", Load(128, 48), 16)
    cell = make_cell(named, 6, truth_of(2, plain=False))
    (found,) = run_offline(("flexgen",), [cell], lambda _: None)
    auto, flexgen = (found.executed[name] for name in ("auto", "flexgen"))
    chosen = found.planned.jobs[0]
    assert chosen.plan is not None
    assert chosen.option is not None
    assert chosen.plan.cpu_layers or chosen.plan.cpu_mlps
    assert auto.tokens_per_s > 1.5 * flexgen.tokens_per_s
    assert auto.pass_s == pytest.approx(chosen.option.prediction.rates.pass_s, rel=0.15)
    assert auto.report.cpu_busy > 0.3
    assert not chosen.plan.host_rows  # so that it is no attention, and is not called so
    assert f"CPU {auto.report.cpu_busy:.0%};" in "\n".join(describe(found))
    assert found.planned.ceiling is not None
    assert auto.tokens_per_s <= found.planned.ceiling.tokens_per_s


def test_without_layers_and_mlps_on_the_cpu_passes_wait_for_weights() -> None:
    named = CellName("a100-80", "server-genoa", "llama-3.1-70b", Load(128, 16), 16)
    cell = make_cell(named, 6, truth_of(2, plain=False))
    search = OfflineSearch(ask(cell))
    name = "auto without layers and MLPs on the CPU"
    lever = next(each for each in ablations.LEVERS if each.name == name)
    spent: list[dict[str, float]] = []
    rates: list[float] = []
    for policy in (find_offline_policy("auto"), lever.policy):
        option, breakdown = search.best(policy), Breakdown()
        assert option is not None
        plan = offline_plan(search, option.candidate)
        file = offline_plan_file(cell.model_name, search.question, plan)
        rates.append(execute(cell, file, (breakdown.executed,)).tokens_per_s)
        spent.append(breakdown.shares)
    lent, brought = spent
    assert rates[0] > 1.5 * rates[1]
    assert lent["CPU layers"] > 0.5
    assert brought["weights"] > 0.8
    assert brought["CPU layers"] == 0.0
    assert sum(lent.values()) == pytest.approx(1)


def test_the_end_of_a_block_with_mlps_on_the_cpu_is_no_news() -> None:
    """Of fewer sequences MLPs take less, which is no machine that is faster than told."""
    named = CellName("a100-80", "server-genoa", "llama-3.1-70b", Load(512, 64), 24)
    cell = make_cell(named, 8, truth_of(1, plain=False))
    search = OfflineSearch(ask(cell))
    policy = replace(find_offline_policy("auto"), name="no KV on the accelerator", resident=False)
    option = search.best(policy)
    assert option is not None
    assert option.candidate.lent
    plan = offline_plan(search, option.candidate, adapts=True)
    found = execute(cell, offline_plan_file(cell.model_name, search.question, plan))
    assert plan.host_rows
    assert found.passes > 3 * REVIEWED_EVERY
    assert not found.replans


def test_unknown_cells_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="opt-30b on a100-40 in lm-offload"):
        choose_cells(["b200"], 8, truth_of(1, plain=True), quick=False)
    both = choose_cells(["opt-13b on a4000", "on t4"], 8, Perturbation(), quick=False)
    assert [each.model_name for each in both] == ["opt-13b", "llama-2-7b"]
    (found,) = choose_cells(["opt-13b on a4000"], 8, Perturbation(), quick=False)
    assert found.model_name == "opt-13b"


def test_the_papers_points_are_cells_of_their_own() -> None:
    assert len(set(map(str, GRID))) == len(GRID)
    assert len(set(map(str, CELLS)) - set(map(str, GRID))) == len(CELLS) - 1  # LM-Offload's
    (found,) = choose_cells(["kvpr, 64 requests, 1024"], 8, Perturbation(), quick=False, grid=True)[
        1:2
    ]
    assert (found.model_name, found.requests) == ("opt-13b", 64)
    for named in GRID:
        assert make_cell(named, 8, Perturbation()).model.num_layers == 8
    with pytest.raises(ConfigError, match="has no cells of --grid"):
        choose_cells((), 8, Perturbation(), quick=True, grid=True)


def test_cells_that_nothing_fits_are_left_out_before_the_run() -> None:
    chosen = choose_cells(["in park-egger, 50"], None, Perturbation(), quick=False, grid=True)
    cells, left_out = check_room(chosen)
    assert [cell.model.num_layers for cell in cells] == [12]
    assert left_out == ()
    small = choose_cells(["in park-egger, 50"], 8, Perturbation(), quick=False, grid=True)
    cells, (why,) = check_room([*small, *chosen])
    assert cells == chosen
    assert "cut to 8 of 48 layers" in why
    assert why.endswith("left out, since nothing fits; raise --layers")
    with pytest.raises(ConfigError, match=r"cut to 8 of 48 layers.*raise --layers"):
        check_room(small)


def test_what_is_done_of_a_long_run_is_written_before_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: OfflineOutcome
) -> None:
    """A cell that fails leaves the record of those before it."""

    def one_then_none(*_: object) -> Iterator[OfflineOutcome]:
        yield outcome
        raise RuntimeError("the second cell")

    monkeypatch.setattr(suite, "run_offline", one_then_none)
    path = tmp_path / "offline.json"
    with pytest.raises(RuntimeError, match="the second cell"):
        bench_offline.offline(path, None, quick=True)
    record = BenchRecord.from_json(path.read_text("utf-8"))
    rows = [*rows_of(outcome), *ratio_rows(outcome.cell)]
    assert [row.value for row in record.rows] == [row.value for row in rows]
    assert record.notes == ("unfinished: 1 of 2 cells",)


def test_a_run_that_was_cut_goes_on_where_its_record_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: OfflineOutcome
) -> None:
    path, other = tmp_path / "offline.json", make_cell(QUICK_CELLS[1], 8, outcome.cell.truth)
    given: list[str] = []

    def run(_: object, cells: Sequence[OfflineCell], __: object) -> Iterator[OfflineOutcome]:
        given.extend(map(str, cells))
        yield from (replace(outcome, cell=cell) for cell in cells)

    def asks(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["tandem", "bench", "offline", *words])

    monkeypatch.setattr(suite, "run_offline", run)
    asks("--quick", "--only", "t4", "--json", str(path), "--resume")
    bench_offline.offline(path, None, only=["t4"], quick=True, resume=True)
    asks("--quick", "--resume", "--json", str(path))
    bench_offline.offline(path, None, quick=True, resume=True)
    assert [name.split(",")[0] for name in given] == ["NVIDIA T4", "NVIDIA A100 SXM4 40 GB"]
    record = BenchRecord.from_json(path.read_text("utf-8"))
    cases = list(dict.fromkeys(row.case for row in record.rows))
    assert cases == given
    assert cases[0] == str(other)
    for case in cases:
        cut = [row for row in record.rows if (row.case, row.variant) == (case, CUT)]
        assert [row.metric for row in cut] == [each.name for each in cut_ratios(other)]
        assert len([row for row in record.rows if row.case == case]) == len(
            list(rows_of(outcome))
        ) + len(cut)
    before = [note for note in record.notes if note.startswith("before: ")]
    assert len(before) == 1
    assert "--only t4" in before[0]
    assert record.unfinished is None
    asks("--quick", "--seed", "2", "--resume", "--json", str(path))
    with pytest.raises(ConfigError, match="was written by another command"):
        bench_offline.offline(path, None, quick=True, seed=2, resume=True)
    with pytest.raises(ConfigError, match="add --json FILE"):
        bench_offline.offline(None, None, quick=True, resume=True)


def test_a_record_that_goes_on_says_what_is_left_and_stays_as_it_is_where_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: OfflineOutcome
) -> None:
    def run(_: object, cells: Sequence[OfflineCell], __: object) -> Iterator[OfflineOutcome]:
        yield from (replace(outcome, cell=cell) for cell in cells)

    monkeypatch.setattr(suite, "run_offline", run)
    path = tmp_path / "offline.json"
    monkeypatch.setattr(sys, "argv", shlex.split(f"tandem bench offline --quick --json {path}"))
    bench_offline.offline(path, None, only=["t4"], quick=True, resume=True)
    written = path.read_text("utf-8")
    assert BenchRecord.from_json(written).notes == ("unfinished: 1 of 2 cells",)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--only=t4", "--resume"])
    bench_offline.offline(path, None, only=["t4"], quick=True, resume=True)
    assert path.read_text("utf-8") == written


def test_ratios_of_a_cut_pair_are_those_of_the_whole_one_as_described() -> None:
    """Its truth deviates, and is no matter of the cut."""
    cell = make_cell(NAMED, 4, truth_of(1, plain=False))
    assert cell.hardware.host.flops_per_s != cell.pair.host.flops_per_s
    assert cell.described.host.flops_per_s == cell.pair.host.flops_per_s
    found = {ratio.name: ratio for ratio in cut_ratios(cell)}
    assert found["host FLOP per byte"].off == 0
    assert not any(ratio.flagged for ratio in found.values())
    twice = replace(cell, model=replace(cell.model, num_layers=8))
    off = {ratio.name: ratio for ratio in cut_ratios(twice)}["accelerator memory to weights"]
    assert off.flagged
    assert any("off by more than 20%" in line for line in describe_ratios(twice))


@pytest.mark.parametrize("kv", [DType.FLOAT16, CodeType.INT8])
def test_a_job_goes_over_to_a_plan_for_the_machine_as_it_is_found(kv: KVType) -> None:
    """Planned for half of its requests, so that blocks follow each other; in few bits by a policy
    under which the CPU computes nothing, since no other plan takes the place of one with that.
    """
    named = replace(NAMED, load=Load(256, 24), requests=200)
    cell = make_cell(named, 4, Perturbation())
    question = mistold(ask(replace(cell, requests=96)))
    question = replace(question, precision=replace(question.precision, kv=kv))
    policy = find_offline_policy("auto")
    if isinstance(kv, CodeType):
        few = replace(policy, name="all KV", kv=("all",))
        policy = replace(few, computes=False, computes_layers=False)
    option = OfflineSearch(question).best(policy)
    assert option is not None
    jobs: dict[bool, RenewedJob] = {}
    for adapts in (True, False):
        plan = offline_plan(OfflineSearch(question), option.candidate, adapts=adapts)
        assert plan.kv_dtype == plan.host_kv_dtype == str(kv)
        jobs[adapts] = execute_renewed(cell, offline_plan_file(cell.model_name, question, plan))
    wanted = sum(shape.generated_tokens for shape in cell.workload.requests)
    assert {job.tokens for job in jobs.values()} == {wanted}
    assert jobs[True].plans > jobs[False].plans == 1
    assert jobs[True].wall_s < 0.95 * jobs[False].wall_s
    assert all("a pass was predicted to take" in job.said[0] for job in jobs.values())


def test_the_informed_plan_stands_beside_what_was_planned_unmeasured() -> None:
    cell = make_cell(NAMED, 4, truth_of(1, plain=False))
    (found,) = run_held_out([cell], lambda _: None)
    assert [run.name for run in found.runs] == [INFORMED, CORRECTED, FIXED]
    assert found.runs[0].option != found.runs[1].option
    rows = list(held_out_rows(found))
    shares = [row.value for row in rows if row.metric == "of the informed plan"]
    assert shares[0] == 1
    assert all(0.5 < share < 1.05 for share in shares)
    assert found.most_per_s is not None
    assert all(run.executed.tokens_per_s <= found.most_per_s * 1.02 for run in found.runs)
    text = "\n".join(describe_held_out(found))
    assert "not corrected" in text
    assert "of the informed plan" in text


def test_kv_is_shared_out_in_so_many_parts() -> None:
    search = OfflineSearch(ask(make_cell(NAMED, 4, Perturbation())))
    eighths = next(lever.policy for lever in ablations.LEVERS if lever.policy.parts == 8)
    assert not eighths.adapts
    found = [c for c in search.candidates.of(eighths) if c.streamed_rows and c.cpu_rows]
    assert found
    for candidate in found:
        parts = {round(n * candidate.host_rows / 8) for n in range(9)}
        assert candidate.cpu_rows in parts
    assert eighths.shares(24, 10) == {9, 12}
    assert eighths.shares(24, 9) == {9}


@pytest.mark.slow
def test_ablations_take_one_means_away_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    levers = {lever.name: lever for lever in ablations.LEVERS}
    assert len(levers) == len(ablations.LEVERS)
    chosen = (levers["auto"], levers["auto without attention on the CPU"])
    monkeypatch.setattr(ablations, "LEVERS", chosen)
    (found,) = ablations.run_ablations([make_cell(NAMED, 4, Perturbation())], lambda _: None)
    auto, crossing, kvpr, fetched, whole, ordered = found.runs
    assert auto.executed.report.cpu_busy > 0
    assert crossing.plan.cpu_rows == 0
    assert (auto.plan.terms is None) == (not auto.plan.host_rows)
    assert kvpr.plan.recomputed_tokens > 0
    assert fetched.plan.recomputed_tokens == 0
    assert whole.plan == replace(kvpr.plan, weights_in_parts=False)
    assert ordered.plan == replace(kvpr.plan, weights_in_parts=True)
    for run in found.runs:
        assert sum(run.shares.values()) == pytest.approx(1)
        assert auto.executed.tokens_per_s >= 0.98 * run.executed.tokens_per_s
    assert kvpr.shares["keys and values"] < fetched.shares["keys and values"]
    assert kvpr.shares["activations"] > fetched.shares["activations"] == 0
    assert kvpr.executed.report.accel_busy > fetched.executed.report.accel_busy
    rows = list(ablations.rows_of(found))
    assert len({(row.variant, row.metric) for row in rows}) == len(rows)
    if native.available():
        assert found.host is not None
        assert min(each.work_beside_per_s for each in found.host.threads.values()) > 0
        assert found.host.alone.ratio > 1  # what comes on top is work
    said = {"virtual"} | ({"measured,"} if native.available() else set())
    assert {row.variant.split()[0] for row in rows} == said
    told = "\n".join(ablations.describe(found))
    assert "kvpr, layers in parts" in told
    assert "W_K and W_V first" in told
