"""When an engine asks for counters that streams raise, and what it says if there are none."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tandem.devices.stream_counters import NoStreamCountersError
from tandem.plan.program import Queue
from tandem.runtime import assemble_cuda
from tandem.spec.errors import ConfigError

COUNTERS = object()


def chosen(
    *, native: bool = True, host_blocks: int = 4, waits: bool = False
) -> tuple[object, tuple[str, ...]]:
    machine = SimpleNamespace(device=torch.device("cpu"), host_tasks=object() if native else None)
    sizes = SimpleNamespace(host_blocks=host_blocks, stream_waits=waits)
    return assemble_cuda._stream_counters(cast("Any", machine), cast("Any", sizes))


def test_copies_to_the_host_raise_what_native_threads_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Queue, ...]] = []

    def opened(device: torch.device, queues: tuple[Queue, ...], *, waits: bool = False) -> object:
        assert waits == (Queue.CPU in queues)
        asked.append(queues)
        return COUNTERS

    monkeypatch.setattr(assemble_cuda, "open_stream_counters", opened)
    assert chosen() == (COUNTERS, ())
    assert asked == [(Queue.D2H,)]
    # nobody waits for them
    assert chosen(native=False) == chosen(host_blocks=0) == (None, ())
    assert len(asked) == 1
    assert chosen(waits=True) == (COUNTERS, ())
    assert asked[1:] == [(Queue.D2H, Queue.CPU)]


def test_streams_that_are_to_wait_and_cannot_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--link-waits stream cannot be: .*compiled kernels"):
        chosen(native=False, waits=True)
    with pytest.raises(ConfigError, match="KV memory on the host"):
        chosen(host_blocks=0, waits=True)

    def refused(*_: object, **__: object) -> object:
        raise NoStreamCountersError("a stream does not wait")

    monkeypatch.setattr(assemble_cuda, "open_stream_counters", refused)
    with pytest.raises(ConfigError, match="cannot be: a stream does not wait; leave it out"):
        chosen(waits=True)


def test_an_engine_without_them_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> object:
        raise NoStreamCountersError("the driver has none")

    monkeypatch.setattr(assemble_cuda, "open_stream_counters", refused)
    counters, notes = chosen()
    assert counters is None
    (note,) = notes
    assert note.endswith("when a thread has seen its input come: the driver has none")
