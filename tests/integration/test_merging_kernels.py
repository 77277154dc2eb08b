"""Kernels that merge two tiers' attention by tokens' places do so in engines as torch does."""

from dataclasses import replace

import pytest
import torch
from tests.support.engines import model_engine, tiny_model
from tests.support.script import run_all
from tests.support.setups import Setup
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.state import merge_states
from tandem.kernels.tier_kernels import ReferenceKernels
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

SPLIT = Setup(
    "ride-along",
    kv_placement="split",
    device_blocks=32,
    host_blocks=32,
    max_num_seqs=4,
    executor="exact",
)
SETUPS = {
    "split": SPLIT,
    "chunks": replace(SPLIT, max_num_batched_tokens=20),
    "cohorts": replace(SPLIT, strategy="rendezvous"),
    # tokens of one tier, of the other, and of both in a lane
    "spilled": replace(SPLIT, kv_placement="auto", device_blocks=5, max_host_seqs=2),
    "graphs": replace(SPLIT, graphs=True),
}


def by_places(
    here: AttentionOutput, there: AttentionOutput, places: Tensor, dtype: torch.dtype
) -> Tensor:
    """In torch, what a kernel does."""

    def spread(part: AttentionOutput, line: Tensor) -> tuple[Tensor, Tensor]:
        out = part.out.new_zeros(len(line), *part.out.shape[1:])
        lse = part.lse.new_full(out.shape[:2], -torch.inf)
        there = line >= 0
        out[there], lse[there] = part.out[line[there].long()], part.lse[line[there].long()]
        return out, lse

    return merge_states(*spread(here, places[0]), *spread(there, places[1]))[0].to(dtype)


@pytest.mark.parametrize("name", SETUPS)
def test_tokens_are_those_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_tokens=10, temperature=0.0, ignore_eos=True)
    requests = [
        EngineRequest(str(i), tuple((7 * i + 3 * j) % 64 for j in range(length)), params)
        for i, length in enumerate((3, 20, 50, 33))
    ]
    with model_engine(tiny_model(), SETUPS[name]) as engine:
        expected = {key: r.token_ids for key, r in run_all(engine.core, requests).items()}
    merged: list[Tensor] = []

    def merge(
        kernels: ReferenceKernels,
        here: AttentionOutput,
        there: AttentionOutput,
        places: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        del kernels
        merged.append(places)
        return by_places(here, there, places, dtype)

    monkeypatch.setattr(ReferenceKernels, "merge", merge, raising=False)
    with model_engine(tiny_model(), SETUPS[name]) as engine:
        assert {k: r.token_ids for k, r in run_all(engine.core, requests).items()} == expected
        engine.check_idle()
    assert len(merged) > 10
    if name == "spilled":
        assert any((places < 0).any() for places in merged)
