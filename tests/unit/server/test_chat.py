"""/v1/chat/completions through OpenAI's own client."""

from typing import Any

import openai
import pytest
from tests.unit.server.conftest import MAX_MODEL_LEN, SAID, RunningServer

CHAT: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


def test_an_answer(server: RunningServer) -> None:
    answer = server.openai().chat.completions.create(model="demo", messages=CHAT)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", SAID)
    assert (choice.finish_reason, answer.object) == ("stop", "chat.completion")
    expected = server.service.frontend.tokenizer.encode_chat(CHAT)
    assert server.core.requests[0].prompt_token_ids == expected
    assert server.core.requests[0].sampling.max_tokens is None


def test_a_stream_says_the_same(server: RunningServer) -> None:
    stream = server.openai().chat.completions.create(
        model="demo",
        messages=CHAT,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
        service_tier="auto",
    )
    chunks = list(stream)
    assert [c.choices[0].delta.role for c in chunks[:2]] == ["assistant", "assistant"]
    for index in (0, 1):
        mine = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == SAID
        assert [choice.finish_reason for choice in mine if choice.finish_reason] == ["stop"]
    assert chunks[-1].usage is not None
    assert chunks[0].service_tier == "default"


def test_text_parts_and_the_developers_role(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": "again"}]
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts},
    ]
    server.openai().chat.completions.create(model="demo", messages=messages)
    same = [CHAT[0], {"role": "user", "content": "Hello\nagain"}]
    expected = server.service.frontend.tokenizer.encode_chat(same)
    assert server.core.requests[0].prompt_token_ids == expected


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(server: RunningServer, stream: bool) -> None:
    answer: Any = server.openai().chat.completions.create(
        model="demo", messages=CHAT, max_tokens=3, logprobs=True, top_logprobs=2, stream=stream
    )
    entries = [
        entry
        for part in (answer if stream else [answer])
        for choice in part.choices
        if choice.logprobs
        for entry in choice.logprobs.content
    ]
    assert [entry.logprob for entry in entries] == [-0.5] * 3
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    assert (
        b"".join(bytes(entry.bytes) for entry in entries).decode()
        == SAID[: len("".join(entry.token for entry in entries))]
    )


def test_logprobs_have_the_bytes_of_half_characters(server: RunningServer) -> None:
    said = server.service.frontend.tokenizer.encode(SAID, add_special_tokens=False)
    answer: Any = server.openai().chat.completions.create(
        model="demo", messages=CHAT, max_tokens=len(said), logprobs=True
    )
    entries = answer.choices[0].logprobs.content
    assert any("\ufffd" in entry.token for entry in entries)  # of the parrot
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == SAID


def test_max_completion_tokens(server: RunningServer) -> None:
    answer = server.openai().chat.completions.create(
        model="demo", messages=CHAT, max_completion_tokens=2, max_tokens=50
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


UNSUPPORTED: list[dict[str, Any]] = [
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
    {"modalities": ["audio"]},
    {"audio": {"voice": "x"}},
    {"reasoning_effort": "high"},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
    {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]},
]
WRONG: list[dict[str, Any]] = [
    {"tool_choice": "required"},
    {"function_call": {"name": "f"}},
    {"top_logprobs": 2},
    {"messages": [{"role": "robot", "content": "x"}]},
    {"messages": [{"role": "assistant", "content": None}]},
    {"messages": []},
]


@pytest.mark.parametrize("extra", [*UNSUPPORTED, *WRONG], ids=str)
def test_what_is_not_supported_is_refused(server: RunningServer, extra: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.openai().post(
            "/chat/completions",
            body={"model": "demo", "messages": CHAT, **extra},
            cast_to=object,
        )
    error = caught.value.body
    assert isinstance(error, dict)
    assert error["type"] == "invalid_request_error"
    assert error["code"] == ("unsupported_parameter" if extra in UNSUPPORTED else None)
    assert error["param"].split("[")[0].split(".")[0] in extra
    assert server.core.requests == []


NEUTRAL: list[dict[str, Any]] = [
    {"tools": []},
    {"tools": None, "tool_choice": None, "functions": None},
    {"tool_choice": "none"},
    {"function_call": "none"},
    {"response_format": {"type": "text"}},
    {"modalities": ["text"]},
    {"audio": None},
    {"logit_bias": {}, "stop": [], "metadata": {"a": "b"}, "store": False},
    {"chat_template_kwargs": {"enable_thinking": False}},
]


@pytest.mark.parametrize("extra", NEUTRAL, ids=str)
def test_what_asks_for_nothing_is_accepted(server: RunningServer, extra: dict[str, Any]) -> None:
    body = {"model": "demo", "messages": CHAT, **extra}
    with server.http() as http:
        assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_too_long_a_conversation(server: RunningServer) -> None:
    messages: Any = [{"role": "user", "content": "word " * MAX_MODEL_LEN}]
    with pytest.raises(openai.BadRequestError) as caught:
        server.openai().chat.completions.create(model="demo", messages=messages, stream=True)
    assert caught.value.code == "context_length_exceeded"
