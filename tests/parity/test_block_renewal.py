"""Tokens stay those of transformers, and samples the same, when another plan comes into force."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.parity.block_models import LLAMA
from tests.parity.checkpoints import Checkpoints
from tests.parity.generation import PROMPTS
from tests.parity.greedy import TieCount, assert_greedy_parity
from tests.support.blocks import ExecutorKind, block_core, small_plan
from tests.support.script import run_all

from tandem.engine import block_renewal
from tandem.engine.block_core import BlockCore
from tandem.engine.block_renewal import Renewal, RenewedBlocks
from tandem.engine.block_stats import BlockCounts
from tandem.kernels.open_pool import open_pool
from tandem.models.config import read_model_spec
from tandem.models.load import load_model
from tandem.plan.offline import OfflinePlan
from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.plan.sweep_layers import SweepChoice
from tandem.planner.offline import replan
from tandem.planner.offline.replan import Replanned
from tandem.planner.question import Lengths, Question
from tandem.spec.errors import ConfigError, EngineDeadError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.workload import RequestShape, Workload

NUM_TOKENS = 12
SMALL = load_hardware("small")
BEFORE = small_plan(("streamed",) * 5, batches=2, streamed_rows=1)
AFTER = small_plan(
    ("streamed", "resident", "streamed", "streamed", "resident"),
    batches=3, resident_rows=1, cpu_rows=1, prompts_on_host=True,
)  # fmt: skip


class Blocks:
    """An engine over a real model's maths that is told, after its third step, that its plan was
    wrong, and that `following` is right.
    """

    def __init__(self, directory: Path, kind: ExecutorKind, following: OfflinePlan | None) -> None:
        self._directory, self._following = directory, following
        self._kind: ExecutorKind = kind
        self.spec = read_model_spec(directory)
        self.built: list[OfflinePlan] = []
        self.refused: tuple[OfflinePlan, ...] = ()
        precision = Precision.uniform(self.spec.dtype)
        renewal = Renewal(self.spec, precision, SMALL, self.build, 0.0)
        file = self._file(BEFORE)
        self.core = RenewedBlocks(self.build(file, BlockCounts()), file, renewal)

    def build(self, file: PlanFile, counts: BlockCounts) -> BlockCore:
        plan = file.blocks
        if plan in self.refused:
            raise ConfigError("no room")
        self.built.append(plan)
        layers = SweepChoice.of_plan(plan.weights)
        model = load_model(self._directory, pool=open_pool(), layers=layers)
        return block_core(model, plan, self._kind, len(self.built), counts)

    def plan_rest(self, *given: Any) -> Replanned | None:
        if self._following is None:
            return None
        lengths = Lengths.of(Workload("rest", (RequestShape(10, 10),)))
        question = Question(self.spec, SMALL, given[2], lengths, 1 << 30, 1 << 30)
        return Replanned(question, self._following, "this", "that", 2.0, 1.0)

    def tokens(self, requests: list[EngineRequest]) -> list[list[int]]:
        steps, step = 0, self.core.step

        def counted() -> Any:
            nonlocal steps
            steps += 1
            if steps == 3:
                self.core.core.scheduler.misjudged = True
            return step()

        self.core.step = counted
        try:
            results = run_all(self.core, requests)
            return [results[request.request_id].token_ids for request in requests]
        finally:
            self.core.close()

    def _file(self, plan: OfflinePlan) -> PlanFile:
        return PlanFile(
            "tiny", PlannedModel.of(self.spec), "small", False, "float32", "float32", "auto",
            "none", "float32", plan, SMALL,
        )  # fmt: skip


Make = Callable[[ExecutorKind, OfflinePlan | None], Blocks]


@pytest.fixture
def make(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> Make:
    directory, _ = checkpoints.get(LLAMA)

    def made(kind: ExecutorKind, following: OfflinePlan | None) -> Blocks:
        blocks = Blocks(directory, kind, following)
        monkeypatch.setattr(replan, "plan_rest", blocks.plan_rest)
        return blocks

    return made


def requests(count: int, **params: Any) -> list[EngineRequest]:
    chosen = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **params)
    return [EngineRequest(str(i), tuple(PROMPTS[i % len(PROMPTS)]), chosen) for i in range(count)]


@pytest.mark.parametrize("kind", ["exact", "threaded"])
def test_greedy_tokens_equal_transformers_across_plans(
    kind: ExecutorKind, make: Make, checkpoints: Checkpoints, ties: TieCount
) -> None:
    blocks, asked = make(kind, AFTER), requests(9, temperature=0.0)
    made = blocks.tokens(asked)
    assert blocks.built == [BEFORE, AFTER]
    _, reference = checkpoints.get(LLAMA)
    for request, tokens in zip(asked, made, strict=True):
        assert_greedy_parity(reference, request.prompt_token_ids, tokens, ties)


def test_samples_do_not_depend_on_the_plan(make: Make) -> None:
    asked = requests(9, temperature=1.0)
    assert make("inline", AFTER).tokens(asked) == make("inline", None).tokens(asked)


def test_a_plan_that_cannot_be_executed_is_said_and_the_one_before_built_again(make: Make) -> None:
    asked = requests(9, temperature=0.0)
    expected = make("inline", None).tokens(asked)
    blocks = make("inline", AFTER)
    blocks.refused = (AFTER,)
    said = list[str]()
    step = blocks.core.step

    def listened() -> Any:
        outputs = step()
        said[:] = blocks.core.core.scheduler.replans
        return outputs

    blocks.core.step = listened
    assert blocks.tokens(asked) == expected
    assert blocks.built == [BEFORE, BEFORE]
    assert said[-1] == "planned anew: the plan before is kept: no room"


def test_without_any_engine_nothing_goes_on(make: Make) -> None:
    blocks = make("inline", AFTER)
    blocks.refused = (BEFORE, AFTER)
    with pytest.raises(EngineDeadError, match="could not be built again: no room"):
        blocks.tokens(requests(9))


def test_the_rest_is_not_planned_for_if_less_than_a_block_waits(make: Make) -> None:
    blocks = make("inline", AFTER)
    blocks.tokens(requests(3))
    assert blocks.built == [BEFORE]
    assert block_renewal.may_be_renewed(blocks.core.planned) is False  # it has no terms
