"""A real server on the loopback interface, over an engine without a model."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import openai
import pytest
from tests.fakes.core import VOCAB_SIZE, FakeCore, saying

import tandem
from tandem.compose import Service
from tandem.engine.clients.inprocess import InProcessClient
from tandem.engine.frontend.frontend import Frontend
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.server.app import create_app
from tandem.server.context import ServerContext
from tandem.server.metrics import ServerMetrics
from tandem.server.serve import DrainingServer, bind
from tandem.server.settings import ServerSettings

SAID = "The quick brown fox jumps over the lazy dog. 🦜 The end."
MAX_MODEL_LEN = 512


@dataclass
class RunningServer:
    """One server and what is behind it."""

    url: str
    core: FakeCore
    service: Service
    died: threading.Event
    stop: Callable[[], None]
    clients: list[openai.OpenAI | httpx.Client] = field(default_factory=list)

    def http(self, **headers: str) -> httpx.Client:
        client = httpx.Client(base_url=self.url, headers=headers, timeout=20)
        self.clients.append(client)
        return client

    def openai(self, api_key: str = "none") -> openai.OpenAI:
        client = openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=api_key, max_retries=0, timeout=20
        )
        self.clients.append(client)
        return client

    def num_running(self) -> int:
        return self.service.frontend.client.stats()["num_running"]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    loaded = load_tokenizer(Path(tandem.__file__).parent / "assets" / "demo-model")
    assert loaded is not None
    return loaded


Start = Callable[..., RunningServer]


@contextmanager
def servers(tokenizer: Tokenizer) -> Iterator[Start]:
    """Start servers, which end with the context; their cores and settings can be changed by
    keyword.
    """
    closers: list[Callable[[], None]] = []

    def start_server(
        core: FakeCore | None = None,
        max_queued: int | None = None,
        ttft_bound_s: float | None = None,
        **changes: object,
    ) -> RunningServer:
        said = saying(tokenizer.encode(SAID, add_special_tokens=False))
        core = core or FakeCore(MAX_MODEL_LEN, token_at=said, step_s=0.001)
        frontend = Frontend(
            InProcessClient(lambda _: core), tokenizer, VOCAB_SIZE, MAX_MODEL_LEN, max_queued
        )
        service = Service(frontend, "demo")
        settings = ServerSettings(
            ("demo", "alias/demo"), port=0, shutdown_timeout_s=0, log_level="warning"
        )
        settings = replace(settings, **changes)
        died = threading.Event()
        frontend.client.on_death(died.set)
        vllm_model = settings.served_model_names[0] if settings.vllm_metrics else None
        context = ServerContext(service, settings, ServerMetrics(ttft_bound_s, vllm_model))
        listener = bind(settings)
        server = DrainingServer(settings, service)
        server.config.app = create_app(context)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()

        def stop() -> None:
            server.should_exit = True

        def close() -> None:
            for client in running.clients:
                client.close()
            stop()
            thread.join()
            service.close()
            listener.close()

        closers.append(close)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        running = RunningServer(url, core, service, died, stop)
        return running

    try:
        yield start_server
    finally:
        for close in closers:
            close()


@pytest.fixture
def start(tokenizer: Tokenizer) -> Iterator[Start]:
    """See `servers`; of a test's own."""
    with servers(tokenizer) as starting:
        yield starting


@pytest.fixture(scope="session")
def shared_server(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    with servers(tokenizer) as starting:
        yield starting()


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    """A server that tests leave as they found it."""
    shared_server.core.requests.clear()
    return shared_server
