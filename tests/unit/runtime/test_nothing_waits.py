"""Nothing in a step waits for the accelerator but who reads its tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.engines import model_engine, tiny_model
from tests.support.script import run_all
from tests.support.setups import Setup, streamed, sweep_choice
from tests.support.waiting import waits_noted
from tests.unit.kernels.sampling_case import make_penalties, make_rows

from tandem.kernels import draw, sampling
from tandem.kernels.sampling import Likeliest, sample
from tandem.memory import workspace
from tandem.models.model import Model
from tandem.spec.kv_type import CodeType
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

_BOTH = Setup(device_blocks=16, host_blocks=16, max_num_seqs=3, kv_placement="split")
_SETUPS = {
    "alone": Setup(device_blocks=32, max_num_seqs=3, max_num_batched_tokens=16),
    "both tiers": replace(_BOTH, strategy="ride-along"),
    "cohorts": replace(_BOTH, strategy="rendezvous"),
    "passes": replace(_BOTH, strategy="asymmetric"),
    "taking turns": replace(_BOTH, strategy="symmetric"),
    "tiers of two types": Setup(
        device_blocks=5,
        host_blocks=16,
        max_num_seqs=3,
        preemption_mode="swap",
        host_kv=CodeType.INT8,
    ),
    "layers on the CPU": replace(_BOTH, strategy="ride-along", homes=((0, "cpu"), (2, "cpu"))),
    "MLPs on the CPU": Setup(device_blocks=32, max_num_seqs=3, homes=((1, "cpu-mlp"),)),
    "streamed": Setup(device_blocks=32, max_num_seqs=3, homes=streamed(0, 1, 2)),
}


def _generate(model: Model, setup: Setup) -> None:
    params = SamplingParams(max_tokens=6, temperature=0.7, seed=1, ignore_eos=True)
    requests = [EngineRequest(str(i), tuple(range(1, 5 + 14 * i)), params) for i in range(3)]
    with model_engine(model, setup) as engine:
        run_all(engine.core, requests)


@pytest.mark.parametrize("name", _SETUPS)
def test_no_operation_of_the_accelerator_s_queues_waits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = _SETUPS[name]
    model = tiny_model(3, layers=sweep_choice(setup.homes))
    with waits_noted(monkeypatch) as waits:
        _generate(model, replace(setup, executor="inline"))
    assert not waits


def test_what_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(3)
    embed = model.embed

    def asking(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        int(ids.max())
        return embed(ids, positions)

    monkeypatch.setattr(model, "embed", asking)
    with waits_noted(monkeypatch) as waits:
        _generate(model, Setup(device_blocks=32, max_num_seqs=3))
    assert waits
    assert all("STAGE EMBED on accel: item" in each for each in waits), waits


def test_sampling_asks_for_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """On torch's device without memory, whatever asks for a number raises; and what is sampled on
    the CPU, which asks for some, is not what a GPU does.
    """
    for sizes in (workspace.SAMPLING_CHUNK_BYTES, workspace.SORTED_BYTES):
        monkeypatch.setitem(sizes, "meta", sizes["cuda"])
    assert sampling.SAMPLING_CHUNK_BYTES is workspace.SAMPLING_CHUNK_BYTES
    assert draw.SORTED_BYTES is workspace.SORTED_BYTES
    n, vocab = 3, 5000
    pairs = np.array([[0, 5], [1, 7]], dtype=np.int64)
    rows = make_rows(
        n, temperature=0.7, top_p=0.9, top_k=50, min_p=0.01, banned=pairs, bias=pairs,
        bias_values=np.ones(2, np.float32), logprobs=4,
        penalties=make_penalties(n, prompt=[(0, 5)], output=[(1, 7, 1)], repetition=1.1),
    )  # fmt: skip
    made = sample(torch.empty(n, vocab, device="meta"), rows)
    assert made.token_ids.shape == (n,)
    assert made.top_token_ids is not None
    assert made.top_token_ids.shape == (n, 4)
    likeliest = Likeliest(made.token_ids, made.valid)
    likeliest.find(torch.empty(n, vocab, device="meta"))
    assert likeliest.of(make_rows(n, greedy=True)).token_ids.shape == (n,)
    with pytest.raises(RuntimeError, match="meta"):
        made.token_ids[0].item()
