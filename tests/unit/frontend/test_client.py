"""Both engine clients, held to the same contract."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest
from tests.fakes.core import BROKEN_TOKEN, CRASH_TOKEN, FOREVER_TOKEN, KILL_TOKEN, FakeCore, build

from tandem.engine.clients.client import EngineClient
from tandem.engine.clients.inprocess import InProcessClient
from tandem.engine.clients.mailbox import Accepted, Event, Failed, Mailbox
from tandem.engine.clients.process_client import ProcessClient
from tandem.engine.clients.registry import RequestRegistry
from tandem.spec.config import EngineConfig
from tandem.spec.errors import (
    ContextLengthError,
    EngineDeadError,
    ModelError,
    RequestError,
    TandemError,
)
from tandem.spec.progress import Progress
from tandem.spec.request import EngineRequest, FinishReason, RequestOutput
from tandem.spec.sampling import SamplingParams

FACTORY = "tests.fakes.core:build"


def request(
    request_id: str, *prompt: int, max_tokens: int = 4, logprobs: int | None = None
) -> EngineRequest:
    return EngineRequest(
        request_id, prompt or (7, 8, 9), SamplingParams(max_tokens=max_tokens, logprobs=logprobs)
    )


def in_process(model: str = "fake") -> EngineClient:
    return InProcessClient(lambda report: build(EngineConfig(model), report))


def in_child(model: str = "fake") -> EngineClient:
    return ProcessClient(FACTORY, EngineConfig(model))


Start = Callable[..., EngineClient]


@pytest.fixture(params=[in_process, in_child])
def start(request: pytest.FixtureRequest) -> Start:
    return request.param


@pytest.fixture
def client(start: Start) -> Iterator[EngineClient]:
    client = start()
    yield client
    client.close()


def follow(client: EngineClient, request: EngineRequest) -> list[RequestOutput]:
    return list(client.stream(client.submit(request)))


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """A run that was started in a shell's background inherits that they are ignored."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def interrupt_main_thread() -> None:
    """As Ctrl-C does; unlike `_thread.interrupt_main` it also wakes a thread that waits."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def tokens(outputs: list[RequestOutput]) -> list[int]:
    return [token for output in outputs for token in output.token_ids]


def test_a_stream_gives_every_token_and_one_end(client: EngineClient) -> None:
    outputs = follow(client, request("a", 7, 8, 9, max_tokens=5, logprobs=2))
    assert tokens(outputs) == [7, 8, 9, 7, 8]
    assert [o.finish_reason for o in outputs if o.finish_reason] == [FinishReason.LENGTH]
    assert outputs[0].logprobs[0].top_token_ids == (7, 8)


def test_an_async_stream_leaves_the_event_loop_free(client: EngineClient) -> None:
    async def sample(name: str, first: int) -> list[int]:
        mailbox = client.submit(request(name, first, max_tokens=20))
        return tokens([output async for output in client.stream_async(mailbox)])

    async def run() -> list[list[int]]:
        return await asyncio.gather(*(sample(f"r{i}", 10 + i) for i in range(20)))

    assert asyncio.run(run()) == [[10 + i] * 20 for i in range(20)]


def test_requests_can_share_a_mailbox(client: EngineClient) -> None:
    mailbox = Mailbox()
    for i in range(3):
        client.submit(request(f"r{i}", 10 + i), mailbox)
    ended: set[str] = set()
    while len(ended) < 3:
        ended |= {
            e.request_id for e in mailbox.take() if isinstance(e, RequestOutput) and e.finish_reason
        }
    assert ended == {"r0", "r1", "r2"}


def test_a_refused_request_fails_alone(client: EngineClient) -> None:
    good = client.submit(request("good", max_tokens=50))
    with pytest.raises(RequestError, match="outside"):
        follow(client, request("bad", 99999))
    with pytest.raises(ContextLengthError, match="600 tokens") as caught:
        follow(client, request("long", *[5] * 600))
    assert caught.value.param == "prompt"
    with pytest.raises(TandemError, match="internal error"):
        follow(client, request("broken", BROKEN_TOKEN))
    assert len(tokens(list(client.stream(good)))) == 50
    assert client.death is None


def test_acceptance_is_told_before_the_first_token(client: EngineClient) -> None:
    mailbox = client.submit(request("a", FOREVER_TOKEN))
    assert mailbox.take()[0] == Accepted("a")


def test_abort_ends_the_stream_and_frees_the_request(client: EngineClient) -> None:
    stream = client.stream(client.submit(request("a", FOREVER_TOKEN)))
    next(stream)
    client.abort("a")
    client.abort("a")
    client.abort("unknown")
    assert list(stream)[-1].finish_reason is FinishReason.ABORT
    stats = client.stats()
    assert (stats["num_running"], stats["num_aborted"]) == (0, 1)


def test_an_unfinished_requests_id_cannot_be_used_again(client: EngineClient) -> None:
    client.submit(request("a", FOREVER_TOKEN))
    with pytest.raises(RequestError, match="in use"):
        client.submit(request("a"))


def test_a_crash_fails_all_requests_and_later_ones(client: EngineClient) -> None:
    mailbox = client.submit(request("a", FOREVER_TOKEN))
    client.submit(request("b", CRASH_TOKEN))
    with pytest.raises(EngineDeadError, match="crashed on purpose"):
        list(client.stream(mailbox))
    with pytest.raises(EngineDeadError):
        client.submit(request("c"))
    with pytest.raises(EngineDeadError):
        client.stats()
    assert client.death is not None


def test_a_death_is_told_without_a_request(start: Start) -> None:
    client = start()
    died, told_late = threading.Event(), threading.Event()
    client.on_death(died.set)
    assert not died.is_set()
    if isinstance(client, ProcessClient):
        os.kill(client.pid, signal.SIGKILL)
    else:
        client.submit(request("crash", CRASH_TOKEN))
    assert died.wait(20)
    client.on_death(told_late.set)
    assert told_late.is_set()
    assert client.death is not None
    client.close()


def test_closing_fails_what_runs(start: Start) -> None:
    client = start()
    mailbox = client.submit(request("a", FOREVER_TOKEN))
    client.close()
    client.close()
    event = mailbox.take()[-1]
    assert isinstance(event, Failed)
    assert isinstance(event.error, EngineDeadError)
    with pytest.raises(EngineDeadError):
        client.submit(request("b"))


def test_load_errors_come_back_as_their_own_class(start: Start) -> None:
    with pytest.raises(ModelError, match="no model at 'missing'") as caught:
        start("missing")
    assert caught.value.param == "model"


def test_the_core_lives_on_one_thread_that_is_not_the_callers() -> None:
    core = FakeCore()
    client = InProcessClient(lambda _: core)
    for name in ("a", "b"):
        follow(client, request(name))
    client.close()
    assert core.closed
    assert len(core.step_threads) == 1
    assert threading.get_ident() not in core.step_threads


def test_an_interrupt_while_loading_ends_the_load_first() -> None:
    """The interpreter cannot end in peace beside a thread that computes."""
    ended = threading.Event()

    def build_for_ever(progress: Progress) -> FakeCore:
        try:
            interrupt_main_thread()
            while True:
                progress("loading weights", 1, 2)
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        InProcessClient(build_for_ever)
    assert ended.is_set()


def test_an_interrupt_just_before_the_load_is_done_closes_the_engine() -> None:
    core, interrupted = FakeCore(), threading.Event()
    handler = signal.signal(signal.SIGINT, lambda *_: _interrupt(interrupted))

    def build_slowly(progress: Progress) -> FakeCore:
        interrupt_main_thread()
        interrupted.wait()
        return core

    try:
        with pytest.raises(KeyboardInterrupt):
            InProcessClient(build_slowly)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert core.closed


def _interrupt(interrupted: threading.Event) -> None:
    interrupted.set()
    raise KeyboardInterrupt


@pytest.mark.parametrize("loading", [False, True])
def test_an_impatient_second_interrupt_changes_nothing(loading: bool) -> None:
    ended = threading.Event()

    def interrupt_the_wait() -> None:
        while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            threading.Event().wait(0.001)
        interrupt_main_thread()

    def build_under_interrupts(progress: Progress) -> FakeCore:
        core = FakeCore()
        if loading:
            interrupt_main_thread()
        core.close = close_under_interrupts
        return core

    def close_under_interrupts() -> None:
        interrupt_the_wait()
        interrupt_the_wait()
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        InProcessClient(build_under_interrupts).close()
    assert ended.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_progress_of_the_load_reaches_the_caller() -> None:
    reports: list[tuple[str, int, int]] = []
    ProcessClient(FACTORY, EngineConfig("fake"), lambda *report: reports.append(report)).close()
    assert reports == [("loading weights", 1, 2), ("loading weights", 2, 2)]


def test_a_fault_in_the_loader_is_reported() -> None:
    with pytest.raises(TandemError, match="broken on purpose"):
        in_child("broken")


def test_a_child_killed_while_loading_is_reported() -> None:
    with pytest.raises(EngineDeadError, match="SIGKILL while it loaded"):
        in_child("killed")


def test_what_cannot_be_sent_fails_alone() -> None:
    client = in_child()
    with pytest.raises(RequestError, match="cannot be sent"):
        client.submit(request("huge", 10**30))
    assert tokens(follow(client, request("good", 7, max_tokens=2))) == [7, 7]
    client.close()


def test_a_childs_death_fails_its_requests() -> None:
    client = ProcessClient(FACTORY, EngineConfig("fake"))
    mailbox = client.submit(request("a", FOREVER_TOKEN))
    client.submit(request("b", KILL_TOKEN))
    with pytest.raises(EngineDeadError, match="SIGKILL while it served"):
        list(client.stream(mailbox))
    client.close()
    assert not psutil.pid_exists(client.pid)


def test_a_terminated_child_leaves_in_order() -> None:
    client = ProcessClient(FACTORY, EngineConfig("fake"))
    mailbox = client.submit(request("a", FOREVER_TOKEN))
    os.kill(client.pid, signal.SIGTERM)
    with pytest.raises(EngineDeadError, match="status 143"):
        list(client.stream(mailbox))
    client.close()


def test_closing_leaves_no_process_and_no_descriptor() -> None:
    gc.collect()  # descriptors that earlier tests dropped do not close in between
    own = psutil.Process()
    before = own.num_fds()
    client = ProcessClient(FACTORY, EngineConfig("fake"))
    assert client.stats()["pid"] == client.pid != os.getpid()
    client.close()
    assert not psutil.pid_exists(client.pid)
    assert own.num_fds() == before


def test_the_child_dies_with_its_parent_and_says_nothing_of_it() -> None:
    program = textwrap.dedent(
        f"""
        import os, signal
        from tandem.engine.clients.process_client import ProcessClient
        from tandem.spec.config import EngineConfig
        from tandem.spec.request import EngineRequest
        from tandem.spec.sampling import SamplingParams
        client = ProcessClient({FACTORY!r}, EngineConfig("fake"))
        mailbox = client.submit(EngineRequest("a", ({FOREVER_TOKEN},), SamplingParams()))
        next(iter(client.stream(mailbox)))
        print(client.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=30,
    )
    # `communicate` returns only when the child, which inherited standard error, has ended too.
    assert result.returncode == -signal.SIGKILL
    assert result.stderr == ""
    pid = int(result.stdout)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_abandoned_stream_may_be_collected_anywhere() -> None:
    """The garbage collector can run an abort on a thread that is delivering."""
    registry, mailbox = RequestRegistry(), Mailbox()
    registry.register("a", mailbox)
    registry.register("b", mailbox)

    class AbortingMailbox(Mailbox):
        def put(self, event: Event) -> None:
            assert registry.abort("b") or event.request_id == "b"
            super().put(event)

    registry.register("c", AbortingMailbox())
    registry.deliver(RequestOutput("c", (1,)))
    assert [event.request_id for event in mailbox.take()] == ["b"]
