"""Tokens stay those of transformers when layers come to the accelerator in every sweep."""

from dataclasses import replace

import pytest
from tests.parity.checkpoints import Checkpoints, check_placed
from tests.parity.generation import NUM_TOKENS
from tests.parity.greedy import TieCount
from tests.parity.modes import MODES, Mode
from tests.parity.tiny_models import Case, moe, rotary
from tests.support.setups import streamed as stream
from transformers import LlamaConfig

MODELS = (
    Case("llama-5-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=5)),
    Case("qwen3moe-5-layers", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
STREAMED = {  # layers of a kind: those with experts, in the second model
    "llama-5-layers": ((0, 1, 2, 3, 4), (0, 4), (1, 2, 3, 4), (0, 2, 3), (2,)),
    "qwen3moe-5-layers": ((1, 2, 3, 4), (1, 4), (2, 3, 4)),
}
IDS = (
    "in-torch", "batched", "chunked", "swapped", "split", "cohorts-split", "exact-device",
    "exact-split", "exact-plain-loop", "exact-cohorts", "exact-swapped", "threaded-cohorts",
)  # fmt: skip
FEWER = ("in-torch", "chunked", "cohorts-split", "exact-split", "exact-swapped", "threaded-cohorts")
CASES = [
    (case, mode, STREAMED[case.id][i % len(STREAMED[case.id])])
    for case in MODELS
    for i, mode in enumerate(
        mode for mode in MODES if mode.id in (IDS if case is MODELS[0] else FEWER)
    )
]


@pytest.mark.parametrize(
    ("case", "mode", "streamed"),
    [pytest.param(c, m, s, id=f"{c.id}-{m.id}-{'.'.join(map(str, s))}") for c, m, s in CASES],
)
def test_greedy_tokens_equal_transformers(
    case: Case, mode: Mode, streamed: tuple[int, ...], checkpoints: Checkpoints, ties: TieCount
) -> None:
    setup = replace(mode.setup, homes=stream(*streamed))
    rounds = (NUM_TOKENS, NUM_TOKENS)
    stats = check_placed(checkpoints.get(case), mode, setup, ties, rounds=rounds)
    assert mode.happened(stats)
