"""Log-probabilities equal the reference's, and generation ends where the reference's ends."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.parity.greedy import Reference
from tests.parity.tiny_models import CASES, VOCAB_SIZE, build
from tests.support.engines import model_engine
from tests.support.script import Generated, run_all
from tests.support.setups import Setup
from transformers import PreTrainedModel

from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams

CASE = next(case for case in CASES if case.id == "llama-gqa4-dim20")
PROMPT = tuple((11 * i * i + 3 * i + 1) % VOCAB_SIZE for i in range(37))
SETUPS = {
    "device": Setup(),
    "split": Setup(strategy="ride-along", host_blocks=32, kv_placement="split", executor="exact"),
    "cohorts": Setup(strategy="rendezvous", host_blocks=32, kv_placement="host"),
}
each_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def reference(directory: Path) -> PreTrainedModel:
    return build(CASE, directory)


@pytest.fixture(scope="module")
def model(reference: PreTrainedModel, directory: Path) -> Model:
    return load_model(directory)


def generate(model: Model, setup: Setup, params: SamplingParams) -> Generated:
    company = SamplingParams(max_tokens=30, temperature=1.0, seed=1, repetition_penalty=1.2)
    requests = [EngineRequest("0", PROMPT, params), EngineRequest("1", PROMPT[:20], company)]
    with model_engine(model, replace(setup, eos_ids=model.spec.eos_token_ids)) as engine:
        return run_all(engine.core, requests)["0"]


@each_setup
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logprobs_are_those_of_the_model_before_temperature_and_filters(
    setup: Setup, temperature: float, model: Model, reference: PreTrainedModel
) -> None:
    params = SamplingParams(
        max_tokens=32, temperature=temperature, top_k=8, seed=3, logprobs=5, ignore_eos=True
    )
    result = generate(model, setup, params)
    assert len(result.logprobs) == len(result.token_ids) == 32
    with torch.no_grad():
        tokens = torch.tensor([[*PROMPT, *result.token_ids]])
        expected = reference(tokens).logits[0, len(PROMPT) - 1 : -1].float().log_softmax(-1)
    for place, (token, entry) in enumerate(zip(result.token_ids, result.logprobs, strict=True)):
        best = expected[place].topk(5)
        assert entry.logprob == pytest.approx(float(expected[place, token]), abs=1e-4)
        assert entry.top_logprobs == pytest.approx(best.values.tolist(), abs=1e-4)
        for ours, theirs in zip(entry.top_token_ids, best.indices.tolist(), strict=True):
            assert float(expected[place, ours] - expected[place, theirs]) == pytest.approx(
                0, abs=1e-4
            )


@each_setup
def test_the_full_distribution_sums_to_one(setup: Setup, model: Model) -> None:
    """All alternatives that may be asked for, and what is left to the others."""
    params = SamplingParams(max_tokens=8, temperature=0.0, logprobs=20, ignore_eos=True)
    for entry in generate(model, setup, params).logprobs:
        total = torch.tensor(entry.top_logprobs, dtype=torch.float64).exp().sum()
        least = torch.tensor(entry.top_logprobs[-1], dtype=torch.float64).exp()
        assert 0 < total <= 1 + 1e-6
        assert total + (VOCAB_SIZE - 20) * least >= 1 - 1e-6
        assert list(entry.top_logprobs) == sorted(entry.top_logprobs, reverse=True)
        assert entry.logprob == entry.top_logprobs[0]


@each_setup
def test_generation_ends_at_the_end_token_as_the_reference_s(
    setup: Setup, model: Model, reference: PreTrainedModel
) -> None:
    """Whatever the reference generates tenth is made the end token of both."""
    usual = Reference(reference).continuation(PROMPT, 24)
    end = usual[9]
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        made = cast(Any, reference).generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=0,
        )
    expected = made[0, len(PROMPT) :].tolist()
    params = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True, stop_token_ids=(end,))
    result = generate(model, setup, params)
    assert result.token_ids == expected == usual[: usual.index(end) + 1]
    assert (result.finish_reason, result.stop_token_id) == (FinishReason.STOP, end)
