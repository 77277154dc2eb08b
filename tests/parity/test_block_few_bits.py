"""Blocks with the host's KV, or streamed layers' weights, in few bits: equal to a reference that
quantizes the same way.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.parity.block_models import GEMMA2, LLAMA, OPT, QWEN3, WIDE, WIDE_GEMMA2
from tests.parity.checkpoints import Checkpoints
from tests.parity.few_bits_reference import FewBitsReference
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.quantized_weights import layer_maps, precision, with_weights
from tests.parity.tiny_models import Case, build
from tests.support.blocks import ExecutorKind, block_engine, small_plan

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import Home, streamed_layers
from tandem.quant.quantize import quantize
from tandem.spec.kv_type import CodeType, NarrowFloat
from tandem.spec.weight_format import WeightFormat

NUM_TOKENS = 8
SIZE = 16  # tokens of a block
MARGIN = 2e-3  # a code may be rounded up here and down there
HOMES: tuple[Home, ...] = ("streamed", "streamed", "host", "streamed")
LEVERS: dict[str, dict[str, Any]] = {
    "streamed": {"streamed_rows": 2},
    "on-cpu": {"cpu_rows": 2},
    "mixed": {"streamed_rows": 1, "cpu_rows": 1, "prompts_on_host": True},
    "recomputed": {"streamed_rows": 2, "recomputed_tokens": 2 * SIZE},
    "cpu-layers": {"streamed_rows": 1, "cpu_rows": 1, "cpu_layers": (2,)},
}
CASES = [
    (OPT, "streamed", CodeType.INT8, "exact"),
    (OPT, "on-cpu", CodeType.INT4, "exact"),
    (LLAMA, "mixed", CodeType.INT8, "exact"),
    (QWEN3, "recomputed", CodeType.INT4, "exact"),
    (LLAMA, "streamed", CodeType.INT4, "threaded"),
    (LLAMA, "cpu-layers", CodeType.INT8, "exact"),
    (LLAMA, "mixed", NarrowFloat.FP8, "exact"),
    (OPT, "on-cpu", NarrowFloat.FP8, "exact"),
    (GEMMA2, "mixed", CodeType.INT4, "exact"),
]


@pytest.mark.parametrize(
    ("case", "lever", "kv", "kind"),
    [pytest.param(*each, id="-".join((each[0].id, *each[1:]))) for each in CASES],
)
def test_tokens_are_those_of_pages_in_few_bits(
    case: Case,
    lever: str,
    kv: CodeType | NarrowFloat,
    kind: ExecutorKind,
    checkpoints: Checkpoints,
    ties: TieCount,
) -> None:
    directory, exact = checkpoints.get(case)
    homes: tuple[Home, ...] = (*HOMES, *["resident"] * (case.config().num_hidden_layers - 4))
    plan = replace(small_plan(homes, **LEVERS[lever]), host_kv_dtype=str(kv))
    model = load_model(directory, pool=open_pool(), layers=plan.layers)
    with block_engine(model, plan, kind, seed=len(lever)) as core:
        made = generate(core, PROMPTS, NUM_TOKENS)
    other = False
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        prefix = min(plan.recomputed_tokens, len(prompt)) // SIZE * SIZE
        reference = FewBitsReference(exact.model, kv, prompt, prefix)
        assert_greedy_parity(reference, prompt, tokens, ties, margin=MARGIN)
        other |= tokens != exact.continuation(prompt, NUM_TOKENS)
    assert other or kv is not CodeType.INT4  # few bits are seen


def test_sequences_on_the_accelerator_stay_exact(checkpoints: Checkpoints, ties: TieCount) -> None:
    directory, exact = checkpoints.get(OPT)
    plan = replace(
        small_plan(HOMES, batches=1, resident_rows=len(PROMPTS), cpu_rows=1), host_kv_dtype="int4"
    )
    model = load_model(directory, pool=open_pool(), layers=SweepChoice.of_plan(plan.weights))
    with block_engine(model, plan, "exact") as core:
        made = generate(core, PROMPTS, NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(exact, prompt, tokens, ties)


@pytest.mark.parametrize(
    ("case", "lever", "kv", "kind"),
    [
        (OPT, {"resident_rows": 2}, CodeType.INT8, "exact"),
        (LLAMA, {"resident_rows": 2}, CodeType.INT4, "threaded"),
        (LLAMA, {"resident_rows": 1, "streamed_rows": 1, "cpu_rows": 1}, CodeType.INT4, "exact"),
        (QWEN3, {"resident_rows": 1, "cpu_rows": 1}, NarrowFloat.FP8, "exact"),
        (GEMMA2, {"resident_rows": 1, "streamed_rows": 1}, CodeType.INT4, "exact"),
        (
            LLAMA,
            {"resident_rows": 1, "streamed_rows": 1, "recomputed_tokens": SIZE},
            CodeType.INT8,
            "exact",
        ),
    ],
    ids=["opt-int8", "llama-int4", "llama-mixed", "qwen3-fp8", "gemma2-int4", "llama-recomputed"],
)
def test_kv_on_the_accelerator_may_be_in_few_bits_too(
    case: Case,
    lever: dict[str, Any],
    kv: CodeType | NarrowFloat,
    kind: ExecutorKind,
    checkpoints: Checkpoints,
    ties: TieCount,
) -> None:
    """What is made anew is as well, since it goes into pages of the accelerator's."""
    directory, exact = checkpoints.get(case)
    homes: tuple[Home, ...] = (*HOMES, *["resident"] * (case.config().num_hidden_layers - 4))
    plan = replace(small_plan(homes, **lever), kv_dtype=str(kv), host_kv_dtype=str(kv))
    model = load_model(directory, pool=open_pool(), layers=plan.layers)
    with block_engine(model, plan, kind, seed=5) as core:
        made = generate(core, PROMPTS, NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        reference = FewBitsReference(exact.model, kv, prompt, 0)
        assert_greedy_parity(reference, prompt, tokens, ties, margin=MARGIN)


MIXED_HOMES: tuple[Home, ...] = ("streamed", "resident", "streamed", "resident", "streamed")


@pytest.mark.parametrize(
    ("case", "format", "lever", "kind"),
    [
        (WIDE, WeightFormat(4, 32), {"resident_rows": 2}, "exact"),
        (WIDE, WeightFormat(8, 128), {"streamed_rows": 1, "cpu_rows": 1}, "exact"),
        (WIDE, WeightFormat(4, 64), {"streamed_rows": 2, "recomputed_tokens": 32}, "threaded"),
        (WIDE_GEMMA2, WeightFormat(4, 32), {"streamed_rows": 1, "cpu_rows": 1}, "exact"),
    ],
    ids=["4-bits", "8-bits-mixed", "4-bits-recomputed", "gemma2-4-bits-mixed"],
)
def test_streamed_layers_alone_are_in_few_bits(
    case: Case,
    format: WeightFormat,
    lever: dict[str, Any],
    kind: ExecutorKind,
    tmp_path: Path,
    ties: TieCount,
) -> None:
    plan = small_plan(MIXED_HOMES, **lever)
    streamed = streamed_layers(plan.weights).layers
    transformers = build(case, tmp_path)
    rounded = {
        name: quantize(weight, format).dequantize()
        for name, weight in layer_maps(transformers).items()
        if int(name.split(".")[2]) in streamed
    }
    assert len(rounded) == 7 * len(streamed)
    reference = Reference(with_weights(transformers, rounded))
    model = load_model(
        tmp_path,
        precision(tmp_path, format),
        pool=open_pool(),
        layers=SweepChoice.of_plan(plan.weights),
        resident_quantized=False,
    )
    with block_engine(model, plan, kind) as core:
        made = generate(core, PROMPTS, NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)
