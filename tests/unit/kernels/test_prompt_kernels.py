"""Prompts by other libraries' kernels, called as they are documented, against float64."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.kernels import prompt_libraries
from tests.unit.kernels.attention_case import CPU, AttentionCase, exact_attention, make_case
from tests.unit.native.tier_case import TierCase, make_tier
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.triton.triton_case import DEVICE, kernels_of

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.efficient_prompts import ARGUMENTS as EFFICIENT_ARGUMENTS
from tandem.kernels.efficient_prompts import EfficientPrompts
from tandem.kernels.flashinfer_prompts import FlashInferPrompts
from tandem.kernels.prompt_kernels import NewKeys, PromptKernels, PromptLibrary
from tandem.kernels.state import merge_states
from tandem.kernels.tier_kernels import MergingKernels, StaticKernels
from tandem.kernels.varlen_prompts import ARGUMENTS, GROUPS, VarlenPrompts

if DEVICE != CPU:
    pytest.skip("the stand-ins are of the CPU", allow_module_level=True)

LIBRARY = SimpleNamespace(
    BatchPrefillWithPagedKVCacheWrapper=prompt_libraries.BatchPrefillWithPagedKVCacheWrapper,
    BatchDecodeWithPagedKVCacheWrapper=prompt_libraries.BatchDecodeWithPagedKVCacheWrapper,
)
Maker = Callable[[AttentionCase, float], PromptLibrary]


def flashinfer(case: AttentionCase, soft_cap: float = 0.0) -> PromptLibrary:
    heads = case.query.shape[1]
    return FlashInferPrompts(
        LIBRARY, CPU, heads, case.shape, case.scale, soft_cap, case.query.dtype
    )


def varlen(case: AttentionCase, soft_cap: float = 0.0) -> PromptLibrary:
    request, heads = prompt_libraries.AuxRequest(), case.query.shape[1]
    return VarlenPrompts(prompt_libraries.varlen_attn, request, CPU, heads, case.shape, case.scale)


def varlen_2_11(case: AttentionCase, soft_cap: float = 0.0) -> PromptLibrary:
    """Whose `varlen_attn` is not told of groups, but takes them."""

    def attend(*arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        assert GROUPS not in options
        groups = arguments[0].shape[1] != arguments[1].shape[1]
        return prompt_libraries.varlen_attn(*arguments, **options, enable_gqa=groups)

    request, heads = prompt_libraries.AuxRequest(), case.query.shape[1]
    return VarlenPrompts(attend, request, CPU, heads, case.shape, case.scale, asks_for_groups=False)


def efficient(case: AttentionCase, soft_cap: float = 0.0) -> PromptLibrary:
    return EfficientPrompts(
        prompt_libraries.efficient_attention_forward, CPU, case.shape, case.scale
    )


ALL = pytest.mark.parametrize("make", [flashinfer, varlen, varlen_2_11, efficient])
BOTH = pytest.mark.parametrize("make", [flashinfer, varlen, varlen_2_11])


def attend(
    tier: TierCase, make: Maker, *, window: int = 0, soft_cap: float = 0.0
) -> AttentionOutput:
    case = tier.case
    kernels = PromptKernels(kernels_of(case, soft_cap=soft_cap), make(case, soft_cap))
    planned = kernels.plan(tier.attention, window)
    assert planned.num_tokens == len(tier.tokens)
    assert (planned.prompts is None) == (tier.attention.block_index is not None)
    return kernels.attend(tier.query, tier.pages, planned)


def check(result: AttentionOutput, expected: AttentionOutput, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(
        tuple(result), tuple(expected), rtol=tolerance, atol=tolerance, check_dtype=False
    )


@ALL
@pytest.mark.parametrize(("group", "head_dim"), [(1, 8), (3, 16)])
def test_prompts_chunks_and_decode_in_one_lane(make: Maker, group: int, head_dim: int) -> None:
    rows = [(20, 1), (70, 1), (150, 90), (9, 2), (8, 8), (16, 16), (17, 17), (64, 3)]
    case = make_case(rows, group=group, head_dim=head_dim)
    check(attend(make_tier(case), make), exact_attention(case))


@pytest.fixture
def filled_memory() -> Iterator[None]:
    """What is not initialized is no zeros."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("filled_memory")
@pytest.mark.parametrize(("window", "soft_cap"), [(0, 0.0), (1, 0.0), (40, 0.0), (0, 2.0)])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_rows_of_one_token_by_flashinfer_s_own_kernels(
    group: int, window: int, soft_cap: float
) -> None:
    """Its sums of exponentials are in base 2; blocks behind a row's own are not read."""
    case = make_case([(1, 1), (16, 1), (17, 1), (100, 1), (64, 1)], group=group, head_dim=16)
    tier, made = make_tier(case), prompt_libraries.BatchDecodeWithPagedKVCacheWrapper.made
    kernels = PromptKernels(kernels_of(case, soft_cap=soft_cap), flashinfer(case, soft_cap))
    made.clear()
    planned = kernels.plan(tier.attention, window)
    assert (planned.own, planned.prompts) == (None, None)
    assert planned.num_tokens == 5
    result = kernels.attend(tier.query, tier.pages, planned)
    check(result, exact_attention(case, window=window, soft_cap=soft_cap))
    assert made == [group >= 4]


def test_rows_of_one_token_stay_with_our_kernels_beside_libraries_without_such() -> None:
    case = make_case([(20, 1), (70, 1)], group=2)
    for make in (varlen, varlen_2_11, efficient):
        planned = PromptKernels(kernels_of(case), make(case, 0.0)).plan(make_tier(case).attention)
        assert planned.own is not None
        assert planned.decodes is None


@ALL
def test_prompts_alone(make: Maker) -> None:
    case = make_case([(33, 33), (40, 5)], group=2)
    check(attend(make_tier(case), make), exact_attention(case))


def new_keys(case: AttentionCase) -> NewKeys:
    """Of the tokens that attend, as a step has them."""
    own = [
        torch.cat([each[-row.queries :] for row, each in zip(case.rows, kept, strict=True)])
        for kept in (case.keys, case.values)
    ]
    return NewKeys(*own)


@pytest.mark.parametrize("make", [varlen, varlen_2_11])
@pytest.mark.parametrize("window", [0, 7])
@pytest.mark.parametrize(
    "rows",
    [
        [(9, 9), (40, 40)],
        [(20, 1), (8, 8), (16, 16)],
        [(20, 1), (150, 90), (8, 8), (70, 5), (33, 33)],
        [(20, 1), (150, 90)],
    ],
    ids=["all", "beside decode", "beside chunks", "none"],
)
def test_keys_of_rows_without_a_prefix_are_not_looked_for_in_pages(
    rows: list[tuple[int, int]], window: int, make: Maker
) -> None:
    case = make_case(rows, group=2)
    tier, fresh = make_tier(case), [row.context == row.queries > 1 for row in case.rows]
    for table, row, is_fresh in zip(tier.attention.block_table, case.rows, fresh, strict=True):
        if is_fresh:
            tier.pages[table[: -(-row.context // case.shape.block_size)].tolist()] = torch.nan
    kernels = PromptKernels(kernels_of(case), make(case, 0.0))
    planned = kernels.plan(tier.attention, window)
    result = kernels.attend(tier.query, tier.pages, planned, new_keys(case))
    check(result, exact_attention(case, window=window))


@BOTH
@pytest.mark.parametrize("window", [1, 7, 40, 1000])
def test_windows(make: Maker, window: int) -> None:
    case = make_case([(100, 1), (90, 60), (30, 30)], group=2)
    check(attend(make_tier(case), make, window=window), exact_attention(case, window=window))


def test_windows_are_not_what_memory_efficient_attention_is_asked_for() -> None:
    case = make_case([(100, 1), (90, 60), (30, 30)], group=2)
    tier, kernels = make_tier(case), PromptKernels(kernels_of(case), efficient(case))
    planned = kernels.plan(tier.attention, 7)
    assert planned.prompts is None
    check(kernels.attend(tier.query, tier.pages, planned), exact_attention(case, window=7))


@ALL
def test_sixteen_bits(make: Maker) -> None:
    case = make_case([(20, 1), (70, 40)], group=2, dtype=torch.float16)
    check(attend(make_tier(case), make), exact_attention(case), 4e-3)


def test_soft_cap() -> None:
    case = make_case([(60, 1), (40, 20)], group=2)
    for query in case.query:
        query *= 20
    result = attend(make_tier(case), flashinfer, soft_cap=5.0)
    check(result, exact_attention(case, soft_cap=5.0))


@ALL
def test_rows_in_both_tiers_are_not_the_library_s(make: Maker) -> None:
    case = make_case([(50, 20), (40, 7)], group=2)
    here, there = [[0, 2], [1]], [[1, 3], [0, 2]]
    parts = [attend(make_tier(case, held), make) for held in (here, there)]
    check(AttentionOutput(*merge_states(*parts[0], *parts[1])), exact_attention(case))


def test_all_else_is_the_wrapped_kernels() -> None:
    case = make_case([(90, 1), (700, 1)], group=3, head_dim=16)
    tier, inner = make_tier(case), kernels_of(case)
    kernels = PromptKernels(inner, varlen(case))
    assert isinstance(kernels, StaticKernels)
    assert isinstance(kernels, MergingKernels)
    assert kernels.name == "torch's varlen_attn for prompts, Triton kernels for the rest"
    position = torch.from_numpy(tier.attention.positions.astype(np.int64))
    table = torch.from_numpy(tier.attention.block_table)
    planned = kernels.plan_static(position, table)
    check(kernels.attend(tier.query, tier.pages, planned), exact_attention(case))


def test_tokens_that_do_not_follow_each_other_are_refused() -> None:
    case = make_case([(40, 3)])
    attention = make_tier(case).attention
    attention.positions[1] += 1
    attention.positions[2] += 2
    with pytest.raises(ValueError, match="must follow each other"):
        PromptKernels(kernels_of(case), varlen(case)).plan(attention)


def test_the_stand_in_of_varlen_attn_has_torch_s_signature() -> None:
    module = pytest.importorskip("torch.nn.attention.varlen")
    real = inspect.signature(module.varlen_attn).parameters
    assert set(real) >= ARGUMENTS
    fake = inspect.signature(prompt_libraries.varlen_attn).parameters
    ours, its = ([(p.name, p.kind) for p in each.values()] for each in (fake, real))
    assert its == (ours if GROUPS in real else ours[: ours.index((GROUPS, fake[GROUPS].kind))])
    assert module.AuxRequest(lse=True).lse
    # what torch itself takes the kernel's second result for
    made = torch.ops.torch_attn._varlen_attn(
        *(torch.empty(6, 4, 8, device="meta") for _ in range(3)),
        *(torch.zeros(2, dtype=torch.int32, device="meta") for _ in range(2)),
        6,
        6,
    )
    assert made[1].shape == (4, 6)  # [heads, tokens]


def test_the_stand_in_of_memory_efficient_attention_has_torch_s_signature() -> None:
    operation = torch.ops.aten._efficient_attention_forward
    real = [argument.name for argument in operation.default._schema.arguments]
    assert set(real) >= EFFICIENT_ARGUMENTS
    fake = inspect.signature(prompt_libraries.efficient_attention_forward).parameters
    assert list(fake) == real
    q, starts = torch.empty(1, 50, 4, 8, device="meta"), torch.zeros(3, dtype=torch.int32)
    k = torch.empty(1, 90, 1, 8, device="meta").expand(-1, -1, 4, -1)
    starts = starts.to("meta")
    made = operation(q, k, k, None, starts, starts, 40, 60, 0.0, 2, True, scale=0.5)
    assert made[0].shape == q.shape
    assert made[1].shape == (2, 4, 64)  # [rows, heads, tokens of the longest, rounded up to 32]
    assert made[1].dtype is torch.float32
