"""Buffers have a place, and only queues that reach it see them."""

import pytest
import torch
from tests.support.engines import tiny_model

from tandem.memory.page import KVPageSpec
from tandem.plan.program import Queue
from tandem.runtime.arena import Arena, ArenaOverflowError
from tandem.runtime.buffers import BufferSpace, DeviceAccessError, Place, PoisonedReadError
from tandem.runtime.kv_store import KVStore
from tandem.spec.dtype import DType
from tandem.spec.tier import Tier

STATE, PARTIAL = ("state", 0), ("host_partial", 0)


@pytest.fixture
def arena() -> Arena:
    return Arena(100)


@pytest.fixture
def buffers(arena: Arena) -> BufferSpace:
    return BufferSpace(arena)


def test_device_memory_is_out_of_the_cpu_queue_s_reach(buffers: BufferSpace) -> None:
    buffers.put(STATE, Place.DEVICE, torch.zeros(2), Queue.ACCEL)
    for queue in (Queue.ACCEL, Queue.D2H, Queue.H2D):
        assert buffers.get(STATE, queue) is not None
    with pytest.raises(DeviceAccessError, match="cpu cannot reach"):
        buffers.get(STATE, Queue.CPU)
    with pytest.raises(DeviceAccessError):
        buffers.put(STATE, Place.DEVICE, torch.zeros(2), Queue.CPU)


def test_host_memory_is_out_of_the_accelerator_s_reach(buffers: BufferSpace) -> None:
    buffers.put(PARTIAL, Place.HOST, torch.zeros(2), Queue.CPU)
    assert buffers.get(PARTIAL, Queue.H2D) is not None
    with pytest.raises(DeviceAccessError, match="accel cannot reach"):
        buffers.get(PARTIAL, Queue.ACCEL)


def test_pages_are_reached_like_buffers() -> None:
    page = KVPageSpec.of_model(tiny_model().spec, dtype=DType.FLOAT32, block_size=16)
    cpu = torch.device("cpu")
    store = KVStore(page, dict.fromkeys(Tier, 2), dict.fromkeys(Tier, cpu))
    assert store.layer(Tier.HOST, 1, Queue.CPU).shape == (2, 2, 1, 16, 8)
    with pytest.raises(DeviceAccessError):
        store.layer(Tier.DEVICE, 0, Queue.CPU)
    with pytest.raises(DeviceAccessError):
        store.layer(Tier.HOST, 0, Queue.ACCEL)


def test_a_buffer_being_written_is_poison_to_all_but_its_writer(buffers: BufferSpace) -> None:
    old = torch.zeros(1)
    buffers.put(STATE, Place.DEVICE, old, Queue.ACCEL)
    buffers.poison(STATE, "writer")
    assert buffers.get(STATE, Queue.ACCEL, "writer") is old
    with pytest.raises(PoisonedReadError, match="while writer writes it"):
        buffers.get(STATE, Queue.D2H, "reader")
    buffers.poison(STATE, "next writer")
    with pytest.raises(PoisonedReadError):
        buffers.get(STATE, Queue.ACCEL, "writer")
    buffers.put(STATE, Place.DEVICE, torch.ones(1), Queue.ACCEL)
    assert buffers.get(STATE, Queue.D2H, "reader") == torch.ones(1)


def test_what_was_never_stored_cannot_be_read(buffers: BufferSpace) -> None:
    with pytest.raises(KeyError):
        buffers.get(STATE, Queue.ACCEL)


def test_only_device_buffers_are_charged(buffers: BufferSpace, arena: Arena) -> None:
    buffers.put(STATE, Place.DEVICE, torch.zeros(10), Queue.ACCEL)
    buffers.put(PARTIAL, Place.HOST, torch.zeros(1000), Queue.CPU)
    assert arena.live_bytes == 40
    buffers.put(STATE, Place.DEVICE, torch.zeros(5), Queue.ACCEL)
    assert (arena.live_bytes, arena.peak_bytes) == (20, 40)
    buffers.drop(0)
    assert arena.live_bytes == 0
    assert not buffers.contains(STATE)


def test_activations_beyond_the_arena_are_refused(buffers: BufferSpace, arena: Arena) -> None:
    buffers.put(STATE, Place.DEVICE, torch.zeros(20), Queue.ACCEL)
    with pytest.raises(ArenaOverflowError, match="80 of 100 are in use"):
        buffers.put(("logits", 0), Place.DEVICE, torch.zeros(6), Queue.ACCEL)
    assert arena.live_bytes == 80
