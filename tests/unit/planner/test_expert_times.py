"""What sweeps of a mixture take while places fill up: few tokens go to most of the experts."""

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.candidate import Candidate
from tandem.planner.search.search import Search

MIXTURE = ask(
    "qwen3-30b-a3b", "rtx5090", "p4d.24xlarge", prompt="2000", generate="200", requests=200
)
APART = Candidate("gpu-only", 0, 45, 0, on_cpu=48, how="cpu-mlp", experts=41)


@pytest.fixture(scope="module")
def search() -> Search:
    return Search(MIXTURE)


def test_few_rows_take_as_long_as_they_are_timed(search: Search) -> None:
    times = search.predictor.sweep_times(APART)
    context = MIXTURE.lengths.context_tokens
    assert times.experts is not None
    for rows in (1, 4, 8, 16, 32, APART.device_rows):
        few = APART._replace(device_rows=rows)
        timed = search.predictor.sweep_times(few)(rows * context, 0.0, 0.0)
        assert times(rows * context, 0.0, 0.0) == pytest.approx(timed, rel=0.12), rows


def test_prompts_alone_read_most_experts(search: Search) -> None:
    times = search.predictor.sweep_times(APART)
    context, rows = MIXTURE.lengths.context_tokens, APART.device_rows
    alone, none = times(0.0, 0.0, 512.0), times(context, 0.0, 0.0)
    beside, without = (times(rows * context, 0.0, tokens) for tokens in (512.0, 0.0))
    # beside rows that have most of them read already a prompt adds less
    assert alone - none > 1.2 * (beside - without)


def test_without_experts_nothing_is_added() -> None:
    dense = Search(ask())
    assert dense.predictor.sweep_times(Candidate("gpu-only", 0, 40, 0)).experts is None
