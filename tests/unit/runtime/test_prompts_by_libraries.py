"""Engines whose prompts another library attends to: the same tokens, whoever has the other rows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.parity.generation import generate
from tests.support.engines import Setup, model_engine, tiny_model
from tests.unit.kernels import prompt_libraries

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.triton.triton_case import DEVICE, WITH_DOT

from tandem.kernels import varlen_prompts
from tandem.kernels.pages import PageShape
from tandem.kernels.prompt_kernels import NewKeys, PromptKernels
from tandem.kernels.tier_kernels import TierKernels
from tandem.kernels.triton_kernels import TritonKernels
from tandem.kernels.varlen_prompts import VarlenPrompts
from tandem.runtime import choose_kernels

if DEVICE.type != "cpu":
    pytest.skip("the stand-ins are of the CPU", allow_module_level=True)

PROMPTS = tuple(tuple((7 * i + p) % 60 for i in range(3 + 15 * p)) for p in range(3))
Call = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def kernels_with(attend: Call) -> Callable[..., TierKernels]:
    """In place of `accelerator_kernels`: Triton's in its interpreter, prompts by `attend`."""

    def made(
        device: torch.device,
        heads: int,
        shape: PageShape,
        scale: float,
        soft_cap: float,
        dtype: torch.dtype,
    ) -> TierKernels:
        inner = TritonKernels(device, heads, shape, scale, soft_cap, WITH_DOT, dtype)
        request = prompt_libraries.AuxRequest()
        return PromptKernels(inner, VarlenPrompts(attend, request, device, heads, shape, scale))

    return made


@pytest.mark.parametrize(
    ("setup", "is_asked"),
    [
        (
            Setup(device_blocks=32, max_num_batched_tokens=24, max_num_seqs=3, executor="exact"),
            True,
        ),
        (
            Setup(
                device_blocks=16, host_blocks=16, max_num_seqs=3, executor="exact",
                strategy="ride-along", kv_placement="split",
            ),
            False,
        ),
    ],
    ids=["in chunks", "in both tiers"],
)  # fmt: skip
def test_tokens_stay(setup: Setup, is_asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with model_engine(tiny_model(), setup) as engine:
        expected = generate(engine.core, PROMPTS, 6)
    calls: list[int] = []

    def attend(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(len(q))
        return prompt_libraries.varlen_attn(q, k, v, **options)

    own: list[bool] = []
    keys_values = varlen_prompts._Part.keys_values

    def noted(part: Any, pages: torch.Tensor, new: NewKeys | None) -> tuple[torch.Tensor, ...]:
        own.append(part.is_fresh and new is not None)
        return keys_values(part, pages, new)

    monkeypatch.setattr(varlen_prompts._Part, "keys_values", noted)
    monkeypatch.setattr(choose_kernels, "accelerator_kernels", kernels_with(attend))
    with model_engine(tiny_model(), setup) as engine:
        assert generate(engine.core, PROMPTS, 6) == expected
        engine.check_idle()
    assert bool(calls) == is_asked
    assert set(own) == ({True, False} if is_asked else set[bool]())  # prompts, and their chunks
