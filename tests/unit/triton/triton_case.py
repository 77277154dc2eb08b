"""Attention cases on the Triton kernels, on a GPU if there is one, else in Triton's interpreter."""

import torch
from tests.support.interpreted_triton import replace_once_a_launch
from tests.unit.kernels.attention_case import AttentionCase
from tests.unit.native.tier_case import TierCase

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.triton_kernels import TritonKernels
from tandem.kernels.triton_support import TritonDevice

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    replace_once_a_launch()
WITH_DOT = TritonDevice(processors=8, has_dot=True)
WITH_E4M3 = TritonDevice(processors=8, has_dot=True, has_e4m3=True)
WITHOUT_DOT = TritonDevice(processors=8, has_dot=False)


def kernels_of(
    case: AttentionCase, unit: TritonDevice = WITH_DOT, *, soft_cap: float = 0.0
) -> TritonKernels:
    """Kernels for a case's pages and queries."""
    heads = case.query.shape[1]
    return TritonKernels(DEVICE, heads, case.shape, case.scale, soft_cap, unit, case.query.dtype)


def attend(
    tier: TierCase, unit: TritonDevice = WITH_DOT, *, window: int = 0, soft_cap: float = 0.0
) -> AttentionOutput:
    """A tier's attention, brought back to the host."""
    kernels = kernels_of(tier.case, unit, soft_cap=soft_cap)
    planned = kernels.plan(tier.attention, window)
    assert planned.num_tokens == len(tier.tokens)
    result = kernels.attend(tier.query.to(DEVICE), tier.pages.to(DEVICE), planned)
    return AttentionOutput(result.out.cpu(), result.lse.cpu())
