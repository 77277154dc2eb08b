"""/v1/completions through OpenAI's own client."""

import openai
import pytest
from tests.fakes.core import FOREVER_TOKEN, FakeCore
from tests.unit.server.conftest import MAX_MODEL_LEN, SAID, RunningServer, Start

from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.request import EngineRequest

MANY = 100


def test_a_text_prompt(server: RunningServer, tokenizer: Tokenizer) -> None:
    answer = server.openai().completions.create(model="demo", prompt="Hi", max_tokens=MANY)
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == (SAID, "stop")
    assert (answer.object, answer.model) == ("text_completion", "demo")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokenizer.encode("Hi"))
    assert answer.usage.completion_tokens == len(tokenizer.encode(SAID))  # bos here, eos there
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_sixteen_tokens_are_the_default(server: RunningServer) -> None:
    answer = server.openai().completions.create(model="demo", prompt="Hi")
    assert answer.choices[0].finish_reason == "stop" or answer.usage
    assert server.core.requests[0].sampling.max_tokens == 16


def test_the_default_is_cut_to_what_the_context_leaves(server: RunningServer) -> None:
    prompt = [FOREVER_TOKEN + 1] * (MAX_MODEL_LEN - 5)
    server.openai().completions.create(model="demo", prompt=prompt)
    assert server.core.requests[0].sampling.max_tokens == 5
    with pytest.raises(openai.BadRequestError):
        server.openai().completions.create(model="demo", prompt=[5] * MAX_MODEL_LEN)


def test_a_stream_says_the_same(server: RunningServer) -> None:
    stream = server.openai().completions.create(
        model="demo",
        prompt="Hi",
        max_tokens=MANY,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(texts) == SAID
    assert not any("\ufffd" in text for text in texts)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 10
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_wire_format_of_a_stream(server: RunningServer) -> None:
    body = {"model": "demo", "prompt": "Hi", "stream": True}
    with server.http().stream("POST", "/v1/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = list(response.iter_lines())
    events = [line for line in lines if line]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    assert lines[1::2] == [""] * (len(lines) // 2)


@pytest.mark.parametrize("stream", [False, True])
def test_choices_are_numbered_by_prompt_then_sample(start: Start, stream: bool) -> None:
    server = start()

    def token_at(request: EngineRequest, index: int) -> int:
        return request.prompt_token_ids[0] + (request.sampling.seed or 0) % 2

    server.core.token_at = token_at
    answer = server.openai().completions.create(
        model="demo", prompt=[[301], [303]], n=2, seed=2, max_tokens=2, stream=stream, echo=True
    )
    texts = {0: "", 1: "", 2: "", 3: ""}
    for part in answer if stream else [answer]:
        for choice in part.choices:  # pyright: ignore[reportAttributeAccessIssue]
            texts[choice.index] += choice.text
    decode = server.service.frontend.tokenizer.decode
    for index, first in enumerate([301, 301, 303, 303]):
        choices = [decode([first]) + decode([first + odd] * 2) for odd in (0, 1)]
        assert texts[index] == choices[0] if index % 2 == 0 else texts[index] in choices
    assert len({request.sampling.seed for request in server.core.requests}) == 2


def test_prompts_of_texts_and_of_token_ids(server: RunningServer) -> None:
    client = server.openai()
    assert len(client.completions.create(model="demo", prompt=["a", "b"]).choices) == 2
    answer = client.completions.create(model="demo", prompt=[5, 6, 7])
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(server: RunningServer, stream: bool) -> None:
    with server.http() as http:
        body = {"prompt": [FOREVER_TOKEN], "max_tokens": 500, "stop": ["own fo"], "stream": stream}
        text = http.post("/v1/completions", json=body).text
    assert '"The quick br"' in text or stream
    assert '"stop_reason":"own fo"' in text.replace('": "', '":"')
    assert "own fo" not in text.replace('"stop_reason":"own fo"', "")
    assert server.num_running() == 0


def test_every_parameter_reaches_the_engine(server: RunningServer) -> None:
    server.openai().completions.create(
        model="alias/demo",
        prompt="Hi",
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        seed=11,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        logit_bias={"5": -100},
        user="me",
        extra_body={
            "min_tokens": 2,
            "top_k": 3,
            "min_p": 0.05,
            "repetition_penalty": 1.1,
            "stop_token_ids": [77],
            "ignore_eos": True,
            "service_tier": "flex",
        },
    )
    (request,) = server.core.requests
    params = request.sampling
    assert (params.max_tokens, params.min_tokens, params.temperature) == (9, 2, 0.5)
    assert (params.top_p, params.top_k, params.min_p, params.seed) == (0.9, 3, 0.05, 11)
    assert (params.presence_penalty, params.frequency_penalty) == (0.1, 0.2)
    assert (params.repetition_penalty, params.logit_bias) == (1.1, ((5, -100.0),))
    assert (params.stop_token_ids, params.ignore_eos, request.priority) == ((77,), True, 1)


def test_logprobs(server: RunningServer, tokenizer: Tokenizer) -> None:
    answer = server.openai().completions.create(model="demo", prompt="Hi", max_tokens=4, logprobs=2)
    (choice,) = answer.choices
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs == [-0.5] * 4
    assert choice.logprobs.text_offset == [
        len("".join(choice.logprobs.tokens[:i])) for i in range(4)
    ]
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs or [{}])


def test_streamed_logprobs_add_up(server: RunningServer) -> None:
    stream = server.openai().completions.create(
        model="demo", prompt="Hi", max_tokens=4, logprobs=1, stream=True
    )
    offsets, tokens = [], []
    for chunk in stream:
        logprobs = chunk.choices[0].logprobs
        assert logprobs is not None
        offsets += logprobs.text_offset or []
        tokens += logprobs.tokens or []
    assert offsets == [len("".join(tokens[:i])) for i in range(4)]


def test_the_best_of_several_is_returned(start: Start) -> None:
    class Ranked(FakeCore):
        def _advance(self, running):
            from dataclasses import replace

            output = super()._advance(running)
            rank = len(self.requests) - self.requests.index(running.request)
            entry = replace(output.logprobs[0], logprob=-float(rank))
            return replace(output, logprobs=(entry,))

    ranked = Ranked(token_at=lambda request, index: 300 + int(request.request_id.split("-")[1]))
    server = start(ranked)
    answer = server.openai().completions.create(
        model="demo", prompt="Hi", best_of=3, n=2, max_tokens=1
    )
    last = max(int(request.request_id.split("-")[1]) for request in ranked.requests)
    decode = server.service.frontend.tokenizer.decode
    assert [choice.text for choice in answer.choices] == [
        decode([300 + last]),
        decode([300 + last - 1]),
    ]
    assert all(choice.logprobs is None for choice in answer.choices)
