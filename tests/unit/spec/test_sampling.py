"""Sampling parameters take what Python callers naturally write, and refuse the rest by name."""

from typing import Any

import numpy as np
import pytest

from tandem.spec.errors import RequestError
from tandem.spec.sampling import SamplingParams


def params(**values: Any) -> SamplingParams:
    return SamplingParams(**values)


@pytest.mark.parametrize(
    ("values", "field", "formed"),
    [
        ({"stop": "END"}, "stop", ("END",)),
        ({"stop": ["a", "b"]}, "stop", ("a", "b")),
        ({"stop": None}, "stop", ()),
        ({"stop_token_ids": [4, 5]}, "stop_token_ids", (4, 5)),
        ({"stop_token_ids": np.array([4, 5])}, "stop_token_ids", (4, 5)),
        ({"logit_bias": {300: 100}}, "logit_bias", ((300, 100.0),)),
        ({"logit_bias": [[7, -1]]}, "logit_bias", ((7, -1.0),)),
        ({"max_tokens": np.int64(3)}, "max_tokens", 3),
        ({"temperature": 1}, "temperature", 1.0),
        ({"top_p": np.float32(0.5)}, "top_p", 0.5),
    ],
    ids=str,
)
def test_values_take_one_form(values: dict[str, Any], field: str, formed: object) -> None:
    value = getattr(params(**values), field)
    assert value == formed
    assert type(value) is type(formed)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_tokens": "5"}, "max_tokens must be a whole number or None, not '5'"),
        ({"max_tokens": 2.5}, "max_tokens must be a whole number or None, not 2.5"),
        ({"max_tokens": True}, "max_tokens must be a whole number or None, not True"),
        ({"temperature": None}, "temperature must be a number, not None"),
        ({"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        ({"temperature": 10**400}, "temperature must be a number in the range of floats"),
        ({"top_p": float("nan")}, "top_p must be above 0 and at most 1, not nan"),
        ({"seed": 1.5}, "seed must be a whole number or None, not 1.5"),
        ({"stop": 5}, "stop must be a text or a list of texts, not 5"),
        ({"stop": [5]}, "stop must be a text or a list of texts"),
        ({"stop": ""}, "stop must be non-empty strings, not an empty one"),
        ({"seed": 10**4000}, "seed must be a 64-bit integer, not 1000"),
        ({"stop_token_ids": [True]}, "stop_token_ids must be a list of whole numbers"),
        ({"logit_bias": 5}, "logit_bias must be a mapping of token ids to numbers, not 5"),
        ({"logit_bias": {"a": 1}}, "logit_bias must be a mapping of token ids to numbers"),
        ({"logit_bias": {5: 1e308}}, "logit_bias must be between -100 and 100, not 1e+308 for tok"),
        ({"logit_bias": [(1, 2, 3)]}, "logit_bias must be a mapping of token ids to numbers"),
        ({"ignore_eos": 1}, "ignore_eos must be True or False, not 1"),
    ],
    ids=str,
)
def test_other_values_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        params(**values)
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.param in values
