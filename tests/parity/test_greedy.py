"""The rule by which greedy tokens are compared accepts transformers' own, and no others."""

from pathlib import Path

import pytest
from tests.parity.checkpoints import Checkpoints
from tests.parity.generation import PROMPTS
from tests.parity.greedy import TIE_MARGIN, Reference, TieCount, assert_greedy_parity
from tests.parity.quantized_reference import QuantizedModel
from tests.parity.tiny_models import CASES, Case, build

from tandem.spec.kv_type import CodeType

NUM_TOKENS = 16
PROMPT = PROMPTS[2]  # as long as a window and more


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_generate_takes_the_best_of_one_pass_over_all(
    case: Case, tmp_path: Path, ties: TieCount
) -> None:
    reference = Reference(build(case, tmp_path))
    made = reference.continuation(PROMPT, NUM_TOKENS)
    assert_greedy_parity(reference, PROMPT, made, ties)


def test_a_cache_that_rounds_gives_the_same_in_one_pass(tmp_path: Path, ties: TieCount) -> None:
    reference = Reference(QuantizedModel(build(CASES[0], tmp_path), CodeType.INT4))
    made = reference.continuation(PROMPT, NUM_TOKENS)
    assert_greedy_parity(reference, PROMPT, made, ties, margin=1e-2)


@pytest.mark.parametrize("place", [0, 7, NUM_TOKENS - 1])
def test_another_token_is_found_wherever_it_is(place: int, checkpoints: Checkpoints) -> None:
    _, reference = checkpoints.get(CASES[0])
    made = reference.continuation(PROMPT, NUM_TOKENS)
    best, second = reference.logits(PROMPT, tuple(made))[place].topk(2).indices.tolist()
    assert made[place] == best
    other = [*made[:place], second, *made[place + 1 :]]
    with pytest.raises(AssertionError, match=f"output token {place} is {second}; .* {best} by"):
        assert_greedy_parity(reference, PROMPT, other, TieCount())


def test_a_tie_is_counted_and_what_follows_is_compared_with_it(checkpoints: Checkpoints) -> None:
    _, reference = checkpoints.get(CASES[0])
    made, ties = reference.continuation(PROMPT, 4), TieCount()
    best = reference.logits(PROMPT, tuple(made))[3].topk(2)
    margin = float(best.values[0] - best.values[1])
    assert margin > TIE_MARGIN
    tied = [*made[:3], int(best.indices[1])]
    tied += reference.continuation((*PROMPT, *tied), 4)
    assert_greedy_parity(reference, PROMPT, tied, ties, margin=2 * margin)
    assert (ties.tokens, ties.ties) == (8, 1)
