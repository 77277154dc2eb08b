"""The Python API with the demo model."""

import asyncio
import gc
import random
from contextlib import aclosing

import pytest

import tandem
from tandem.spec.errors import ContextLengthError, EngineDeadError, ModelError, RequestError
from tandem.spec.request import FinishReason

PROMPT = "The purpose of this function is"


def greedy(max_tokens: int = 20, **changes: object) -> tandem.SamplingParams:
    values = {"temperature": 0.0, "max_tokens": max_tokens, **changes}
    return tandem.SamplingParams(**values)


def test_all_ways_of_generating_agree(llm: tandem.LLM) -> None:
    output = llm.generate(PROMPT, greedy())[0]
    (sample,) = output.outputs
    assert output.prompt == PROMPT
    assert sample.text == llm.frontend.tokenizer.decode(sample.token_ids)
    by_ids = llm.generate([list(output.prompt_token_ids)], greedy())[0].outputs[0]
    assert by_ids.token_ids == sample.token_ids
    streamed = list(llm.stream(PROMPT, greedy()))
    assert "".join(delta.text for delta in streamed) == sample.text
    assert [t for delta in streamed for t in delta.token_ids] == list(sample.token_ids)


def test_async_ways_agree_too(llm: tandem.LLM) -> None:
    async def run() -> tuple[str, str]:
        whole = (await llm.agenerate(PROMPT, greedy()))[0].outputs[0].text
        async with aclosing(llm.astream(PROMPT, greedy())) as deltas:
            return whole, "".join([delta.text async for delta in deltas])

    whole, streamed = asyncio.run(run())
    assert whole == streamed == llm.generate(PROMPT, greedy())[0].outputs[0].text


def test_outputs_keep_the_order_of_prompts(llm: tandem.LLM) -> None:
    prompts = [[5 + i] * (1 + 7 * i) for i in range(8)]
    limits = [greedy(1 + (i * 5) % 11, ignore_eos=True) for i in range(8)]
    outputs = llm.generate(prompts, limits)
    assert [list(output.prompt_token_ids) for output in outputs] == prompts
    assert [len(o.outputs[0].token_ids) for o in outputs] == [p.max_tokens for p in limits]


def test_closing_a_stream_frees_its_memory(llm: tandem.LLM) -> None:
    stream = llm.stream(PROMPT, greedy(400, ignore_eos=True))
    next(stream)
    stream.close()
    list(llm.stream(PROMPT, greedy(2)))  # whatever was in flight has ended with it
    stats = llm.stats()
    assert stats["num_running"] == 0
    assert all(tier["held_blocks"] == 0 for tier in stats["tiers"])


def test_many_concurrent_requests_with_random_aborts(llm: tandem.LLM) -> None:
    """Survivors are exact, and every pool is back at zero."""
    rng = random.Random(5)
    prompts = [[rng.randrange(7, 4000) for _ in range(rng.randrange(1, 40))] for _ in range(200)]
    doomed = {i: rng.randrange(0, 6) for i in rng.sample(range(200), 80)}
    params = greedy(8, ignore_eos=True)

    async def one(index: int) -> list[int] | None:
        token_ids: list[int] = []
        async with aclosing(llm.astream(prompts[index], params)) as deltas:
            async for delta in deltas:
                token_ids += delta.token_ids
                if len(token_ids) > doomed.get(index, 99):
                    return None
        return token_ids

    async def everything() -> list[list[int] | None]:
        return await asyncio.gather(*(one(index) for index in range(len(prompts))))

    found = asyncio.run(everything())
    survivors = [index for index, token_ids in enumerate(found) if token_ids is not None]
    assert len(survivors) == 120
    for index in survivors[::12]:
        alone = llm.generate([prompts[index]], params)[0].outputs[0]
        assert found[index] == list(alone.token_ids)
    stats = llm.stats()
    assert (stats["num_running"], stats["num_waiting"]) == (0, 0)
    for tier in stats["tiers"]:
        assert (tier["held_blocks"], tier["leased_blocks"]) == (0, 0)
        assert tier["free_blocks"] + tier["cached_blocks"] >= tier["total_blocks"]


def test_bad_prompts(llm: tandem.LLM) -> None:
    for prompt, error in [("", RequestError), ([[5] * 600], ContextLengthError)]:
        with pytest.raises(error):
            llm.generate(prompt, greedy())
    assert llm.stats()["num_running"] == 0


def test_an_engine_in_a_process_of_its_own_says_the_same(llm: tandem.LLM) -> None:
    expected = llm.generate(PROMPT, greedy(12, logprobs=2))[0].outputs[0]
    with tandem.LLM("demo", isolated=True, accelerator="none", max_model_len=256) as isolated:
        found = isolated.generate(PROMPT, greedy(12, logprobs=2))[0].outputs[0]
        assert isolated.stats()["num_running"] == 0
    assert (found.text, found.token_ids) == (expected.text, expected.token_ids)
    for ours, theirs in zip(found.logprobs, expected.logprobs, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert ours.top_token_ids == theirs.top_token_ids


def test_the_emulated_accelerator_says_the_same(llm: tandem.LLM) -> None:
    expected = llm.generate(PROMPT, greedy(12))[0].outputs[0]
    with tandem.LLM("demo", accelerator="emulated", max_model_len=256) as emulated:
        assert emulated.generate(PROMPT, greedy(12))[0].outputs[0].text == expected.text


def test_load_errors_are_the_same_in_both_places() -> None:
    for isolated in (False, True):
        with pytest.raises(ModelError, match="no directory '/nowhere'"):
            tandem.LLM("/nowhere", isolated=isolated)


def test_a_closed_llm_says_so() -> None:
    llm = tandem.LLM("demo", accelerator="none", max_model_len=128)
    llm.close()
    with pytest.raises(EngineDeadError, match="closed"):
        llm.generate(PROMPT)


def test_end_of_text_and_length(llm: tandem.LLM) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    sample = llm.chat(messages, greedy(200)).outputs[0]
    assert sample.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    assert "<|" not in sample.text


def test_a_forgotten_llm_is_closed_when_it_is_collected() -> None:
    llm = tandem.LLM("demo", accelerator="none", max_model_len=128)
    client = llm.frontend.client
    del llm
    gc.collect()
    assert client.death is not None


HARD = [
    {"top_k": 2**31 - 1},
    {"seed": 2**64 - 1},
    {"seed": -(2**63)},
    {"temperature": 1e-320},
    {"temperature": 100.0},
    {"top_p": 1e-30},
    {"min_p": 1.0},
    {"repetition_penalty": 1e-30},
    {"presence_penalty": 2.0, "frequency_penalty": -2.0},
    {"min_tokens": 3, "stop_token_ids": tuple(range(1000))},
    {"logprobs": 20},
    {"logit_bias": tuple((token_id, -100.0) for token_id in range(1000))},
]


@pytest.mark.parametrize("values", HARD, ids=str)
def test_extreme_parameters_are_served(llm: tandem.LLM, values: dict[str, object]) -> None:
    params = greedy(3, **{"temperature": 0.7, "ignore_eos": True, **values})
    sample = llm.generate([[5, 6, 7]], params)[0].outputs[0]
    assert len(sample.token_ids) == 3
