"""Stopping a server is orderly for clients that still wait."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.fakes.core import FOREVER_TOKEN
from tests.unit.server.conftest import Start


@pytest.mark.parametrize("stream", [False, True])
def test_requests_that_take_too_long_are_aborted_and_answered(
    start: Start, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    body = {"prompt": [FOREVER_TOKEN], "max_tokens": 400, "stream": stream}
    with server.http() as http, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.post, "/v1/completions", json=body)
        while server.num_running() == 0:
            assert not answer.done()
        server.stop()
        text = answer.result().text
    if stream:
        assert text.endswith("data: [DONE]\n\n")
        text = text.split("\n\n")[-3].removeprefix("data: ")
    assert json.loads(text)["choices"][0]["finish_reason"] == "abort"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
