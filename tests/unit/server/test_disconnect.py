"""A client that goes away frees what it held, whatever it was waiting for."""

import json
import socket
import threading

import pytest
from tests.fakes.core import FOREVER_TOKEN, FakeCore
from tests.unit.server.conftest import RunningServer, Start, servers

from tandem.engine.frontend.tokenizer import Tokenizer


class AbortWatch(FakeCore):
    """Tells of every abort that found its request, and when the first step begins."""

    def __init__(self, step_gate: threading.Semaphore | None = None) -> None:
        super().__init__(step_gate=step_gate, step_s=0.001)
        self.dropped = threading.Semaphore(0)
        self.stepping = threading.Event()

    def step(self):
        self.stepping.set()
        return super().step()

    def abort(self, request_id: str) -> None:
        super().abort(request_id)
        if request_id in self.aborted:
            self.dropped.release()


def send(server: RunningServer, **body: object) -> socket.socket:
    """Send a request that would never end, by a bare socket."""
    port = int(server.url.rsplit(":", 1)[1])
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    content = json.dumps({"prompt": [FOREVER_TOKEN], "max_tokens": 400, **body}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnection_aborts_all_samples(start: Start, stream: bool) -> None:
    core = AbortWatch()
    server = start(core)
    connection = send(server, stream=stream, n=3)
    assert core.stepping.wait(20)
    if stream:
        assert b"200 OK" in connection.recv(100)
    connection.close()
    assert all(core.dropped.acquire(timeout=20) for _ in range(3))
    assert server.num_running() == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnection_before_the_first_token(start: Start, stream: bool) -> None:
    gate = threading.Semaphore(0)
    core = AbortWatch(gate)
    server = start(core)
    connection = send(server, stream=stream)
    assert core.stepping.wait(20)
    connection.close()
    try:
        # Step by step, until the server has noticed.
        while not core.dropped.acquire(timeout=0.02):
            gate.release()
    finally:
        gate.release(1000)
    assert server.num_running() == 0


def test_others_are_not_disturbed(start: Start) -> None:
    core = AbortWatch()
    server = start(core)
    connection = send(server, stream=True)
    assert core.stepping.wait(20)
    connection.close()
    answer = server.openai().completions.create(model="demo", prompt=[9], max_tokens=3)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3
    assert core.dropped.acquire(timeout=20)


def test_a_disconnection_within_the_body_is_no_fault(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    with servers(tokenizer) as starting:
        server = starting()
        port = int(server.url.rsplit(":", 1)[1])
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(head + b"{")
        answer = server.openai().completions.create(model="demo", prompt=[9], max_tokens=3)
        assert answer.usage is not None
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
