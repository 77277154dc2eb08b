"""Rows that go to the host and come back while a step runs, and the counters between."""

import threading

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from tests.support.interpreted_asm import install
from tests.unit.triton.triton_case import DEVICE

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)
if DEVICE.type != "cpu":
    pytest.skip("with a GPU, the smoke tests of the GPU run", allow_module_level=True)

from tandem.runtime.host_link import HostLink, HostLostError, LinkRows

HEADS = (4, 2, 8)
BASE = 2**32 - 2  # the second layer's value is 0
ROWS = np.array([4, 1], dtype=np.int32)
PUT = np.array([1], dtype=np.int32)


def _pinned(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8)


def open_link(limit_s: float = 60.0) -> HostLink:
    """Both counters are where they are before the step."""
    link = HostLink(4, HEADS, torch.float32, DEVICE, _pinned, lambda part: part, limit_s)
    for counter in (link.down, link.up):
        counter.set(2**31 - 1)  # half the circle at most
        counter.set(BASE)
    return link


def bring(link: HostLink, base: int = BASE, told: int = 3) -> LinkRows:
    """A step's numbers."""
    step = LinkRows(base, told, ROWS, PUT)
    link.numbers.copy_(link.numbers_of(step))
    return step


def value(layer: int, base: int = BASE) -> int:
    return (base + layer + 1) % 2**32


@pytest.mark.timeout(60)
def test_rows_go_down_before_the_counter_rises_and_come_up_after_the_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch)
    link, before = open_link(), 0.0
    step = bring(link)
    for layer in range(3):
        query, key, v = torch.randn(6, 4, 8), torch.randn(6, 2, 8), torch.randn(6, 2, 8)
        link.send(layer, query, key, v)
        assert link.down.value == value(layer)
        staging = link.staging(len(ROWS), len(PUT))
        assert torch.equal(staging.query, query[[4, 1]])
        assert torch.equal(staging.key, key[[1]])
        assert torch.equal(staging.value, v[[1]])
        host = threading.Thread(target=attend, args=(link, layer))
        host.start()
        received = link.receive(layer, 6)
        host.join()
        assert (received.out[:2] == layer + 0.5).all()
        assert (received.lse[:2] == layer + 0.25).all()
        assert link.waited_s(step) > before
        before = link.waited_s(step)


def attend(link: HostLink, layer: int) -> None:
    """The host's part."""
    staging = link.staging(len(ROWS), len(PUT))
    staging.out.fill_(layer + 0.5)
    staging.lse.fill_(layer + 0.25)
    link.up.set(value(layer))


@pytest.mark.timeout(60)
def test_a_host_that_does_not_come_is_waited_for_once_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = list[int]()

    def clock() -> int:
        """Ten milliseconds later at every look."""
        moments.append(10_000_000 * len(moments))
        return moments[-1]

    install(monkeypatch, clock)
    link = open_link(limit_s=0.3)
    step = bring(link)
    link.receive(0, 6)
    assert 30 <= len(moments) <= 33
    with pytest.raises(HostLostError, match=r"for 0\.3 s, and went on without it"):
        link.waited_s(step)
    for layer in (1, 2):
        link.receive(layer, 6)
    later = bring(link, base=1, told=4)
    link.receive(0, 6)
    assert len(moments) <= 33 + 3 * 2
    for each in (step, later):
        with pytest.raises(HostLostError):
            link.waited_s(each)


def test_what_has_come_counts_however_late_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch)
    link = open_link(limit_s=0.0)
    step = bring(link)
    for layer in range(3):
        link.up.set(value(layer))
        link.receive(layer, 6)
    assert link.waited_s(step) > 0
