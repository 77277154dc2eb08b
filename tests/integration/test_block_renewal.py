"""Whole jobs on another machine than was planned for: another plan comes into force, and gains."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.test_block_adapting import mistold, slower

from tandem.bench.offline.cell import CellName, OfflineCell, make_cell
from tandem.bench.offline.plans import ask, plan_jobs
from tandem.bench.online.cell import Load
from tandem.engine.block_core import BlockCore
from tandem.engine.block_renewal import (
    Renewal,
    RenewedBlocks,
    may_be_renewed,
    renewal_note,
)
from tandem.engine.block_stats import BlockCounts
from tandem.engine.building.paced_blocks import build_paced_blocks
from tandem.engine.building.paced_machine import PacedOptions
from tandem.engine.sizing.plan_options import engine_config
from tandem.memory.page import KVPageSpec
from tandem.plan.offline import OfflinePlan
from tandem.plan.plan_file import PlanFile
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file
from tandem.planner.question import Question
from tandem.runtime.paced.host_truth import HostTruth
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

PLANNED_FOR, REQUESTS = 96, 200
NAMED = CellName("t4", "g4dn.4xlarge", "opt-6.7b", Load(256, 24), PLANNED_FOR)


@pytest.fixture(scope="module")
def cell() -> OfflineCell:
    return replace(make_cell(NAMED, 4, Perturbation()), requests=REQUESTS)


@pytest.fixture(scope="module")
def asked(cell: OfflineCell) -> Question:
    return ask(replace(cell, requests=PLANNED_FOR))


def planned(question: Question) -> OfflinePlan:
    plan = plan_jobs(question, ["auto"])[0].plan
    assert plan is not None
    assert plan.terms is not None
    return plan


class Job:
    """The cell's job in virtual time, on engines that follow each other; weights that come to the
    accelerator anew take their time.
    """

    def __init__(self, cell: OfflineCell, folder: Path) -> None:
        self.cell, self._folder = cell, folder
        self.clock = VirtualClock()
        self.plans: list[PlanFile] = []
        self.tokens: dict[str, int] = {}
        self.finished: set[str] = set()

    def build(self, file: PlanFile, counts: BlockCounts | None = None) -> BlockCore:
        cell, plan = self.cell, file.blocks
        self.plans.append(file)
        path = self._folder / f"plan-{len(self.plans)}.json"
        path.write_text(file.to_json(), "utf-8")
        page = KVPageSpec.of_model(cell.model, dtype=DType.FLOAT16, block_size=plan.block_size)
        host = HostTruth(cell.model, page, cell.hardware.host, cell.truth)
        given = {
            "model": cell.model_name,
            "plan": str(path),
            "gpu_memory": str(plan.accelerator.capacity_bytes),
            "cpu_memory": str(plan.host.capacity_bytes),
        }
        self.clock.time_s += self.load_s(file)
        return build_paced_blocks(
            engine_config(given),
            cell.model,
            cell.hardware,
            PacedOptions(perturbation=cell.truth, cores=(0,), cache_bytes=1),
            clock=self.clock,
            pool=VirtualPool(host.duration_s),
            check=True,
            counts=counts,
        ).core

    def load_s(self, file: PlanFile) -> float:
        """Of weights to the accelerator, over the true link."""
        return file.blocks.accelerator.weights_bytes / self.cell.hardware.link.h2d_bytes_per_s

    def run(self, core: BlockCore | RenewedBlocks) -> float:
        begin_s = self.clock.now()
        for number, shape in enumerate(self.cell.workload.requests):
            params = SamplingParams(max_tokens=shape.generated_tokens, ignore_eos=True)
            core.add_request(EngineRequest(str(number), (3,) * shape.prompt_tokens, params))
        while core.has_work():
            for output in core.step():
                assert output.request_id not in self.finished
                got = self.tokens.get(output.request_id, 0)
                self.tokens[output.request_id] = got + len(output.token_ids)
                if output.finish_reason is not None:
                    self.finished.add(output.request_id)
        for number, shape in enumerate(self.cell.workload.requests):
            assert self.tokens[str(number)] == shape.generated_tokens
        return self.clock.now() - begin_s


def renewed(job: Job, file: PlanFile) -> RenewedBlocks:
    assert file.machine is not None
    precision = Precision.uniform(DType.FLOAT16)
    renewal = Renewal(job.cell.model, precision, file.machine, job.build, job.load_s(file))
    return RenewedBlocks(job.build(file), file, renewal)


def test_another_plan_comes_into_force_where_the_machine_is_not_as_told(
    cell: OfflineCell, asked: Question, tmp_path: Path
) -> None:
    question = mistold(asked)
    file = offline_plan_file(cell.model_name, question, planned(question))
    shares_only = Job(cell, tmp_path)
    before_s = shares_only.run(shares_only.build(file))
    job = Job(cell, tmp_path)
    core = renewed(job, file)
    after_s = job.run(core)
    assert len(job.plans) >= 2
    assert core.planned.plan == job.plans[-1].plan != file.plan
    assert core.planned.blocks.max_model_len == file.blocks.max_model_len
    said = core.stats().notes
    assert any("planned anew: from the next block on" in line for line in said)
    assert any("a pass was predicted to take" in line for line in said)
    assert after_s < 0.95 * before_s, (after_s, before_s)
    counts = core.stats()
    requests = cell.workload.requests
    assert counts.generated_tokens == sum(shape.generated_tokens for shape in requests)
    assert counts.prompt_tokens == sum(shape.prompt_tokens for shape in requests)
    assert (counts.num_running, counts.num_waiting) == (0, 0)


def test_a_plan_stays_while_the_truth_holds(
    cell: OfflineCell, asked: Question, tmp_path: Path
) -> None:
    job = Job(cell, tmp_path)
    core = renewed(job, offline_plan_file(cell.model_name, asked, planned(asked)))
    job.run(core)
    assert len(job.plans) == 1
    assert not any("planned anew" in line for line in core.stats().notes)


def test_loading_that_takes_longer_than_it_gains_is_not_done(
    cell: OfflineCell, asked: Question, tmp_path: Path
) -> None:
    question = mistold(asked)
    file = offline_plan_file(cell.model_name, question, planned(question))
    job = Job(cell, tmp_path)
    assert file.machine is not None
    precision = Precision.uniform(DType.FLOAT16)
    dear = Renewal(cell.model, precision, file.machine, job.build, 1e4)
    core = RenewedBlocks(job.build(file), file, dear)
    job.run(core)
    assert len(job.plans) == 1
    said = [line for line in core.stats().notes if line.startswith("planned anew: all but shares")]
    assert said
    assert "loading 1e+04" in said[0]


def test_a_plan_that_is_said_to_stay_as_it_is_stays(
    cell: OfflineCell, asked: Question, tmp_path: Path
) -> None:
    """As one may be that has taken another one's place."""
    question = slower(asked)
    plan = offline_plan(OfflineSearch(question), BlockCandidate(2, 4, 0, 24, 0))
    assert plan.fixed_terms is not None
    job = Job(cell, tmp_path)
    core = renewed(job, offline_plan_file(cell.model_name, question, plan))
    job.run(core)
    assert len(job.plans) == 1
    (said,) = (line for line in core.stats().notes if "a pass was predicted" in line)
    assert said.endswith("; the plan stays as it is")
    assert not any("planned anew" in line for line in core.stats().notes)


def test_files_without_rates_or_with_few_bits_by_home_keep_their_plan(
    cell: OfflineCell, asked: Question
) -> None:
    file = offline_plan_file(cell.model_name, asked, planned(asked))
    assert may_be_renewed(file)
    assert PlanFile.from_json(file.to_json()) == file
    assert not may_be_renewed(replace(file, machine=None))
    assert not may_be_renewed(replace(file, plan=replace(file.blocks, terms=None)))
    few = replace(file.blocks, quantized_layers="streamed", quantization="int4")
    assert not may_be_renewed(replace(file, plan=few))


def test_what_a_job_does_not_do_where_times_are_wrong_is_said_at_the_start(
    cell: OfflineCell, asked: Question
) -> None:
    file = offline_plan_file(cell.model_name, asked, planned(asked))
    plan = file.blocks
    assert plan.terms is not None
    fixed = replace(plan, terms=None, fixed_terms=plan.terms)

    def said(changed: OfflinePlan, *, timed: bool = True) -> str | None:
        return renewal_note(replace(file, plan=changed), timed=timed)

    assert said(plan) is None
    few = replace(plan, quantized_layers="streamed", quantization="int4")
    for changed, part in (
        (few, "only shares of KV are solved anew, and no other plan takes this one's place"),
        (fixed, "change nothing: the plan's policy, or its memory, fixes shares"),
        (replace(plan, terms=None), "has no terms of its passes"),
    ):
        assert part in (said(changed) or "")
    assert "keeps no time" in (said(plan, timed=False) or "")
