"""Fields of wrong types are named as the caller wrote them, in words of the API."""

import json
from typing import Any

import pytest

from tandem.api.body import parse_body
from tandem.api.chat_schema import ChatRequest
from tandem.api.errors import ApiError

CHAT = [{"role": "user", "content": "Hi"}]
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages must be a list, not None"),
    ({"messages": []}, "messages must be a list that is not empty, not []"),
    ({"messages": [5]}, "messages[0] must be an object, not 5"),
    ({"messages": [{"content": "x"}]}, "messages[0].role is missing; give one"),
    (
        {"messages": [{"role": "user", "content": 5}]},
        "messages[0].content must be a text or a list, not 5",
    ),
    (
        {"messages": [*CHAT, {"role": "user", "content": [{"text": "x"}]}]},
        "messages[1].content[0].type is missing; give one",
    ),
    ({"stop": 5}, "stop must be a text or a list, not 5"),
    ({"stop": ["a", 5]}, "stop[1] must be a text, not 5"),
    ({"n": 0, "seed": "x"}, "n must be at least 1, not 0"),
    ({"n": 1000}, "n must be at most 128, not 1000"),
    ({"n": 1.5}, "n must be a whole number, not 1.5"),
    ({"logit_bias": {"5": "a"}}, "logit_bias.5 must be a number, not 'a'"),
    (
        {"stream_options": {"include_usage": 1}},
        "stream_options.include_usage must be true or false",
    ),
    (
        {"service_tier": "gold"},
        "service_tier must be 'auto', 'default', 'flex', 'priority' or 'scale'",
    ),
    ({"metadata": "x"}, "metadata must be an object, not 'x'"),
]


@pytest.mark.parametrize(("fields", "message"), FAULTS, ids=str)
def test_a_fault_is_told_in_one_line_of_the_apis_words(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        parse_body(json.dumps({"messages": CHAT, **fields}).encode(), ChatRequest)
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message
    assert (caught.value.status, caught.value.param) == (400, next(iter(fields)))


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(ApiError, match=r"^messages is missing; give one$"):
        parse_body(b"{}", ChatRequest)
