import errno
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context

import pytest

from tandem.cli.children import Children, _compute
from tandem.spec.errors import ConfigError


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def results_come_from_other_processes() -> None:
    with Children(cores=2) as children:
        waits = [children.begin(lambda each=each: (each, os.getpid())) for each in range(3)]
        found = [wait() for wait in waits]
    assert [each for each, _ in found] == [0, 1, 2]
    processes = {process for _, process in found}
    assert len(processes) == 3
    assert os.getpid() not in processes
    assert all(map(is_gone, processes))


def results_may_be_larger_than_a_pipe_holds() -> None:
    with Children(cores=2) as children:
        assert len(children.begin(lambda: bytes(2**20))()) == 2**20


def what_fails_in_a_child_fails_here() -> None:
    def fail() -> int:
        raise ConfigError("no such plan")

    with Children(cores=2) as children, pytest.raises(ConfigError, match="no such plan"):
        children.begin(fail)()


def what_a_killed_child_does_not_tell_is_computed_here() -> None:
    here = os.getpid()

    def killed() -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    with Children(cores=2) as children:
        assert children.begin(killed)() == here


def what_a_child_cannot_send_is_computed_here() -> None:
    with Children(cores=2) as children:
        found: Callable[[], int] = children.begin(lambda: lambda: os.getpid())()
    assert found() == os.getpid()


def children_end_with_the_context_also_when_it_fails() -> None:
    def interrupt(children: Children) -> None:
        children.begin(lambda: time.sleep(60))
        raise KeyboardInterrupt

    children = Children(cores=2)
    begun_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt), children:
        interrupt(children)
    with pytest.raises(ChildProcessError):  # there is none left to wait for
        os.waitpid(-1, os.WNOHANG)
    assert time.monotonic() - begun_s < 30


def a_child_that_is_being_asked_ends_with_the_context() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def ask(children: Children) -> None:
        wait = children.begin(lambda: time.sleep(60))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        wait()

    signal.signal(signal.SIGALRM, interrupted)
    begun_s, open_before = time.monotonic(), len(os.listdir("/proc/self/fd"))
    children = Children(cores=2)
    with pytest.raises(KeyboardInterrupt), children:
        ask(children)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert time.monotonic() - begun_s < 30


def children_end_with_a_process_that_a_signal_ends() -> None:
    ours, theirs = os.pipe()
    parent = os.fork()
    if not parent:
        with Children(cores=2) as children:
            children.begin(lambda: time.sleep(60))
            os.kill(os.getpid(), signal.SIGTERM)
    os.close(theirs)
    os.waitpid(parent, 0)
    ready, _, _ = select.select([ours], [], [], 30)
    assert ready  # as nobody is left who could write there
    assert os.read(ours, 1) == b""


def children_whose_parent_has_ended_before_compute_nothing() -> None:
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitpid(ended, 0)
    child = os.fork()
    if not child:
        _compute(lambda: time.sleep(60), os.open(os.devnull, os.O_WRONLY), parent=ended)
    begun_s = time.monotonic()
    assert os.waitpid(child, 0) == (child, 0)
    assert time.monotonic() - begun_s < 30


def where_no_process_may_begin_all_is_computed_here() -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.MonkeyPatch.context() as patched, Children(cores=2) as children:
        patched.setattr(os, "fork", refused)
        assert children.begin(os.getpid)() == os.getpid()
    assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.parametrize(
    "body",
    [
        results_come_from_other_processes,
        results_may_be_larger_than_a_pipe_holds,
        what_fails_in_a_child_fails_here,
        what_a_killed_child_does_not_tell_is_computed_here,
        what_a_child_cannot_send_is_computed_here,
        children_end_with_the_context_also_when_it_fails,
        a_child_that_is_being_asked_ends_with_the_context,
        children_end_with_a_process_that_a_signal_ends,
        children_whose_parent_has_ended_before_compute_nothing,
        where_no_process_may_begin_all_is_computed_here,
    ],
    ids=lambda body: body.__name__,
)
def test_children(body: Callable[[], None]) -> None:
    """In a process of its own: tests' workers have threads, beside which there are no children."""
    process = get_context("spawn").Process(target=body)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_one_core_computes_in_turn() -> None:
    with Children(cores=1) as children:
        assert children.begin(os.getpid)() == os.getpid()


def test_a_process_with_threads_has_no_children() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    try:
        with Children(cores=2) as children:
            assert children.begin(os.getpid)() == os.getpid()
    finally:
        ends.set()
        thread.join()
