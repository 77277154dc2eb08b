"""With another KV type on the host, 64 greedy tokens equal those of transformers whose cache rounds
each token as the tier does in which it lies.

As with `test_quantized_kv`, a token may differ where the best two logits are close.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES, Mode
from tests.parity.quantized_reference import Held, QuantizedModel
from tests.parity.tiny_models import CASES, build
from tests.support.engines import model_engine
from transformers import PreTrainedModel

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat

MARGIN = {
    DType.FLOAT16: 1e-3, DType.FLOAT32: 1e-3, NarrowFloat.FP8: 1e-2, CodeType.INT8: 1e-3,
    CodeType.INT4: 1e-2,
}  # fmt: skip
INT8_ON_HOST = (DType.FLOAT32, CodeType.INT8)
HALF_ON_HOST = (DType.FLOAT32, DType.FLOAT16)
INT4_ON_HOST = (DType.FLOAT16, CodeType.INT4)
FP8_ON_HOST = (DType.FLOAT16, NarrowFloat.FP8)
WIDE_ON_HOST = (CodeType.INT8, DType.FLOAT32)
CASES_BY_MODE: tuple[tuple[str, tuple[KVType, KVType]], ...] = (
    ("host-lane", INT4_ON_HOST),
    ("threaded-cohorts", HALF_ON_HOST),
    ("split", INT8_ON_HOST),
    ("split", WIDE_ON_HOST),
    ("split", FP8_ON_HOST),
    ("cohorts-split", HALF_ON_HOST),
    ("exact-split", INT4_ON_HOST),
)
BLOCK = 16


class Implementations:
    """One model in ours and in transformers' implementation."""

    def __init__(self, directory: Path) -> None:
        self._model: PreTrainedModel = build(CASES[0], directory)
        self._references: dict[Held, Reference] = {}
        self.ours: Model = load_model(directory, pool=open_pool())

    def reference(self, held: Held) -> Reference:
        if held not in self._references:
            self._references[held] = Reference(QuantizedModel(self._model, held))
        return self._references[held]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Implementations:
    return Implementations(tmp_path_factory.mktemp("host_kv"))


def mode(name: str) -> Mode:
    return next(mode for mode in MODES if mode.id == name)


def on_device(name: str, prompt: tuple[int, ...]) -> int:
    """Leading tokens that `--kv-placement` keeps off the host: half of the prompt's blocks."""
    return BLOCK * (-(-len(prompt) // BLOCK) // 2) if "split" in name else 0


@pytest.mark.parametrize(("name", "types"), CASES_BY_MODE)
def test_tokens_are_rounded_as_the_tier_has_them(
    name: str, types: tuple[KVType, KVType], models: Implementations, ties: TieCount
) -> None:
    kv, host_kv = types
    setup = replace(mode(name).setup, kv=kv, host_kv=host_kv)
    assert setup.block_size == BLOCK
    with model_engine(models.ours, setup) as engine:
        made = generate(engine.core, PROMPTS)
        engine.check_idle()
        assert mode(name).happened(engine.stats), engine.stats
    margin = max(MARGIN[kv], MARGIN[host_kv])
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        reference = models.reference(Held(kv, host_kv, on_device(name, prompt)))
        assert_greedy_parity(reference, prompt, tokens, ties, margin=margin)


def test_cached_blocks_are_found_in_each_tier_in_its_own_type(
    models: Implementations, ties: TieCount
) -> None:
    kv, host_kv = INT4_ON_HOST
    prompt = PROMPTS[-1]
    with model_engine(models.ours, replace(mode("split").setup, kv=kv, host_kv=host_kv)) as engine:
        first, again = (generate(engine.core, (prompt,))[0] for _ in range(2))
        assert engine.stats.cached_prompt_tokens == len(prompt) // BLOCK * BLOCK
    assert again == first
    reference = models.reference(Held(kv, host_kv, on_device("split", prompt)))
    assert_greedy_parity(reference, prompt, first, ties, margin=MARGIN[host_kv])


def test_the_reference_tells_where_tokens_lie(models: Implementations) -> None:
    prompt, (kv, host_kv) = PROMPTS[-1], INT4_ON_HOST
    made = {
        tuple(models.reference(Held(kv, host_kv, first)).continuation(prompt, 64))
        for first in (0, 48, 1 << 20)
    }
    assert len(made) == 3


@pytest.mark.parametrize("name", ["swapped", "exact-swapped"])
def test_pages_that_swap_to_a_wider_type_come_back_unchanged(
    name: str, models: Implementations, ties: TieCount
) -> None:
    setup = replace(mode(name).setup, kv=DType.FLOAT16, host_kv=DType.FLOAT32)
    with model_engine(models.ours, setup) as engine:
        made = generate(engine.core, PROMPTS)
        engine.check_idle()
        assert mode(name).happened(engine.stats), engine.stats
    reference = models.reference(Held(DType.FLOAT16, DType.FLOAT16))
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties, margin=MARGIN[DType.FLOAT16])
