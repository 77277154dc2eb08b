"""Stopping a server is orderly for clients that still wait."""

import json
import logging

import pytest
from tests.fakes.core import FOREVER_TOKEN
from tests.unit.server.conftest import Start

ENDLESS = {"prompt": [FOREVER_TOKEN], "max_tokens": 400}


@pytest.mark.parametrize("stream", [False, True])
def test_requests_that_take_too_long_are_aborted_and_answered(
    start: Start, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    body = {**ENDLESS, "stream": stream}
    with server.http() as http, http.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        first = next(lines) if stream else ""
        server.stop()
        text = "\n".join([first, *lines])
    if stream:
        assert text.endswith("data: [DONE]\n")
        text = [line for line in text.splitlines() if line][-2].removeprefix("data: ")
    assert json.loads(text)["choices"][0]["finish_reason"] == "abort"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
