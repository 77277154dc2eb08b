"""Layers that are kept in stripes come back as they were, from every folder its share."""

import mmap
import os
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tandem.cost.park_egger.nvme_balance import balance
from tandem.models import stripe_shares as module
from tandem.models.stripe_shares import stripe_shares
from tandem.models.weight_spool import WeightSpool
from tandem.plan.disk_slots import BLOCK_BYTES, THREADS, piece_bytes, slots_bytes
from tandem.spec.errors import ConfigError


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1000, 3 << 20, (3 << 20) + 12])
def test_layers_come_back(tmp_path: Path, count: int, size: int) -> None:
    layers = [torch.randint(0, 256, (size,), dtype=torch.uint8) for _ in range(3)]
    spool = WeightSpool(tuple(tmp_path / str(n) for n in range(count)), size, len(layers))
    places = [spool.append(layer) for layer in layers]
    for layer, extents in zip(layers, places, strict=True):
        found, shares = bytearray(size), Counter[Path]()
        for extent in extents:
            with extent.file.open("rb") as file:
                read = os.pread(file.fileno(), extent.size_bytes, extent.offset)
            found[extent.target : extent.target + len(read)] = read
            shares[extent.file] += len(read)
            assert (extent.offset - extent.target) % BLOCK_BYTES == 0  # needs no copy
        assert bytes(found) == layer.numpy().tobytes()
        assert max(shares.values()) - size / count <= piece_bytes(count)
        assert len(shares) == (count if size > 1000 else 1)
    if count > 1:  # in turn, so that threads that take one after the other are on all disks
        turns = [extent.file for extent in places[0]]
        assert all(one != other for one, other in pairwise(turns))
    spool.close()
    for n in range(count):
        assert not list((tmp_path / str(n)).iterdir())


def test_disks_of_unlike_rates_have_shares_that_they_read_in_the_same_time(tmp_path: Path) -> None:
    """Each as fast as if throttled; equal shares take as long as the slowest times their number."""
    rates = (300.0, 100.0, 50.0)
    shares = balance(3, lambda given: [s / rate for s, rate in zip(given, rates, strict=True)])
    size = 64 << 20
    layer = torch.randint(0, 256, (size,), dtype=torch.uint8)
    read_s: dict[str, float] = {}
    for name, chosen in (("equal", None), ("balanced", shares)):
        folders = tuple(tmp_path / f"{name}{n}" for n in range(3))
        spool = WeightSpool(folders, size, 1, chosen)
        extents = spool.append(layer)
        held, paths = Counter[Path](), list(dict.fromkeys(extent.file for extent in extents))
        for extent in extents:
            held[extent.file] += extent.size_bytes
            seen = sum(held.values())
            for path, share in zip(paths, chosen or (), strict=False):  # on all disks all the time
                assert abs(held[path] - share * seen) <= 2 * piece_bytes(3)
        read_s[name] = max(held[path] / rate for path, rate in zip(paths, rates, strict=True))
        found = bytearray(size)
        for extent in extents:
            with extent.file.open("rb") as file:
                part = os.pread(file.fileno(), extent.size_bytes, extent.offset)
            found[extent.target : extent.target + len(part)] = part
        assert bytes(found) == layer.numpy().tobytes()
        spool.close()
    least_s = size / sum(rates)
    assert read_s["equal"] == pytest.approx(size / 3 / 50, rel=0.02)
    assert least_s <= read_s["balanced"] < 1.1 * least_s


def test_disks_are_told_apart_by_reading_where_much_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = (tmp_path / "fast", tmp_path / "slow")
    assert stripe_shares(folders, "cached", 1 << 20) == (0.5, 0.5)
    assert not list(tmp_path.iterdir())  # nothing was written to find out
    monkeypatch.setattr(module, "PROBED_BYTES", 8 << 20)
    read, slow = os.preadv, threading.Semaphore(1)

    def throttled(descriptor: int, buffers: list[mmap.mmap], at: int) -> int:
        if "slow" in os.readlink(f"/proc/self/fd/{descriptor}"):
            with slow:  # one piece at a time, each in 4 ms
                end_s = time.perf_counter() + 4e-3
                while time.perf_counter() < end_s:
                    os.sched_yield()
                return read(descriptor, buffers, at)
        return read(descriptor, buffers, at)

    monkeypatch.setattr(os, "preadv", throttled)
    fast, other = stripe_shares(folders, "cached", 1 << 30)
    assert fast + other == pytest.approx(1)
    assert fast > 0.6
    assert stripe_shares(folders[:1], "cached", 1 << 30) == (1.0,)


def test_a_folder_that_cannot_be_used_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ConfigError, match=r"cannot keep weights in .*file \(.*; name another"):
        WeightSpool((tmp_path / "folder", tmp_path / "file"), 1000, 1)
    assert set(os.listdir("/proc/self/fd")) == before


def test_folders_of_one_file_system_have_room_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = 3 * (1 << 20) // 4096  # 3 MiB free
    free = os.statvfs_result((4096, 4096, blocks, blocks, blocks, 10, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: free)
    WeightSpool((tmp_path / "a", tmp_path / "b"), 1 << 20, 1).close()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ConfigError, match=r"4\.\d MiB of weights .* but .*a has 3\.0 MiB free"):
        WeightSpool((tmp_path / "a", tmp_path / "b"), 1 << 20, 3)
    assert set(os.listdir("/proc/self/fd")) == before


def test_threads_of_several_disks_take_no_more_memory() -> None:
    slots = slots_bytes(0) - THREADS * (piece_bytes(1) + 2 * BLOCK_BYTES)
    for disks in (2, 3, 4):
        size = piece_bytes(disks)
        assert size % BLOCK_BYTES == 0
        assert slots + THREADS * disks * (size + 2 * BLOCK_BYTES) <= slots_bytes(0)
        assert size > 240 << 10
