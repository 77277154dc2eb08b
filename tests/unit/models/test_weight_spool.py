"""Layers that are kept in stripes come back as they were, an equal share from every folder."""

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch

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
        WeightSpool((tmp_path / "a", tmp_path / "b"), 1 << 20, 2)
    assert set(os.listdir("/proc/self/fd")) == before


def test_threads_of_several_disks_take_no_more_memory() -> None:
    slots = slots_bytes(0) - THREADS * (piece_bytes(1) + 2 * BLOCK_BYTES)
    for disks in (2, 3, 4):
        size = piece_bytes(disks)
        assert size % BLOCK_BYTES == 0
        assert slots + THREADS * disks * (size + 2 * BLOCK_BYTES) <= slots_bytes(0)
        assert size > 240 << 10
