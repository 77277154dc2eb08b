"""With a quantized KV cache, 64 greedy tokens equal those of transformers with the same cache.

A key that lies on the border between two codes may fall to the other side where two libraries'
sums differ in the last bit: a token may differ where the best two logits are as close as that.

Every mode has a narrow float and codes, of four and of eight bits in turn: those differ in how a
kernel unpacks them, which its own tests compare value by value.
"""

from pathlib import Path

import pytest
from tests.parity.covering import modes_in_turns
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES, Mode
from tests.parity.quantized_reference import QuantizedModel
from tests.parity.tiny_models import CASES, build
from tests.support.engines import model_engine

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.kv_type import CodeType, NarrowFloat

KINDS = (*NarrowFloat, *CodeType)
RUNS = [*((mode, kv) for mode in MODES for kv in NarrowFloat), *modes_in_turns(tuple(CodeType))]
MARGIN = {NarrowFloat.FP8: 1e-2, CodeType.INT8: 1e-3, CodeType.INT4: 1e-2}


class Quantized:
    """One model in ours and in transformers' implementation."""

    def __init__(self, directory: Path) -> None:
        model = build(CASES[0], directory)
        self.references = {kv: Reference(QuantizedModel(model, kv)) for kv in KINDS}
        self.in_torch = load_model(directory)
        self.compiled = load_model(directory, pool=open_pool())

    def model(self, mode: Mode) -> Model:
        return self.compiled if mode.compiled else self.in_torch


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Quantized:
    return Quantized(tmp_path_factory.mktemp("quantized"))


@pytest.mark.parametrize(
    ("mode", "kv"), [pytest.param(mode, kv, id=f"{mode.id}-{kv}") for mode, kv in RUNS]
)
def test_greedy_tokens_equal_transformers_with_the_same_cache(
    mode: Mode, kv: NarrowFloat | CodeType, quantized: Quantized, ties: TieCount
) -> None:
    with model_engine(quantized.model(mode), mode.setup_with(kv)) as engine:
        for _ in range(mode.runs):
            groups = (PROMPTS,) if mode.together else tuple((prompt,) for prompt in PROMPTS)
            made = [tokens for group in groups for tokens in generate(engine.core, group)]
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(
                    quantized.references[kv], prompt, tokens, ties, margin=MARGIN[kv]
                )
        engine.check_idle()
        stats = engine.stats
    assert mode.happened(stats), stats
