"""kvikio's reads of layers, over a stand-in with its signatures that reads into host memory."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.fakes.kvikio import FakeKvikio
from torch import Tensor

from tandem.models.direct_reader import PIECE_BYTES, DirectReader, pieces
from tandem.models.disk_extents import Extent, LayerExtents, base_of
from tandem.plan.disk_slots import BLOCK_BYTES, slot_bytes
from tandem.spec.errors import ConfigError, ModelError

SIZES = (PIECE_BYTES + 12_344, 700)
LAYER_BYTES = sum(SIZES)
LAYERS = 3


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(LAYERS * (LAYER_BYTES + 100) + 5000))
    return path


def layers_of(file: Path) -> list[LayerExtents]:
    """Of two runs of bytes each, which begin anywhere."""
    found: list[LayerExtents] = []
    for number in range(LAYERS):
        first = 1236 + number * (LAYER_BYTES + 100)
        second = first + SIZES[0] + 36
        found.append((Extent(file, first, SIZES[0], 0), Extent(file, second, SIZES[1], SIZES[0])))
    return found


def slots() -> Tensor:
    """Two, each of which begins with a block."""
    size = slot_bytes(LAYER_BYTES)
    memory = torch.zeros(2 * size + BLOCK_BYTES, dtype=torch.uint8)
    start = -memory.data_ptr() % BLOCK_BYTES
    return memory[start : start + 2 * size].view(2, size)


Make = Callable[..., DirectReader]


@pytest.fixture
def fake() -> FakeKvikio:
    return FakeKvikio()


@pytest.fixture
def make(fake: FakeKvikio, file: Path) -> Make:
    def made(memory: Tensor, *copies: Path) -> DirectReader:
        there = [{file: place} for place in (file, *copies)]
        return DirectReader(fake, there, layers_of(file), memory, 8)

    return made


def content(file: Path, layer: LayerExtents) -> bytes:
    stored = file.read_bytes()
    return b"".join(stored[e.offset : e.offset + e.size_bytes] for e in layer)


def test_layers_go_round_in_two_slots(make: Make, file: Path) -> None:
    memory, layers = slots(), layers_of(file)
    reader = make(memory)
    for turn in range(2 * LAYERS + 1):
        at = reader.acquire(turn % LAYERS)
        assert at == turn % 2 * memory.shape[1] + base_of(layers[turn % LAYERS])
        there = memory.view(-1)[at : at + LAYER_BYTES]
        assert there.numpy().tobytes() == content(file, layers[turn % LAYERS])
        reader.release()
    assert reader.bytes_read == [(2 * LAYERS + 1) * LAYER_BYTES]
    reader.stop()


def test_a_slot_is_read_into_only_when_it_has_been_given_back(make: Make, fake: FakeKvikio) -> None:
    memory = slots()
    reader = make(memory)
    reads = len(fake.reads)
    reader.acquire(0)
    reader.acquire(1)
    assert len(fake.reads) == reads
    held = memory[1].clone()
    reader.release()
    first, size = memory.data_ptr(), memory.shape[1]
    assert all(first <= at and at + n <= first + size for _, _, n, at in fake.reads[reads:])
    reader.acquire(2)
    assert torch.equal(memory[1], held)
    reader.stop()


def test_reads_are_of_whole_blocks_of_the_file_in_blocks_of_memory(
    make: Make, fake: FakeKvikio, file: Path
) -> None:
    """But for an extent's ends."""
    make(slots()).stop()
    whole = [read for read in fake.reads if read[1] % BLOCK_BYTES == 0 == read[2] % BLOCK_BYTES]
    assert sum(size for _, _, size, _ in whole) >= 2 * (SIZES[0] - 2 * BLOCK_BYTES)
    assert all(address % BLOCK_BYTES == 0 for _, _, size, address in whole if size > BLOCK_BYTES)
    assert max(size for _, _, size, _ in fake.reads) == PIECE_BYTES
    assert fake.settings == {"num_threads": 8}


def test_pieces_are_all_bytes_once() -> None:
    for first in (0, 1, 4095, 4096, 5000):
        for size in (1, 4095, 4096, 4097, 9000, PIECE_BYTES, 2 * PIECE_BYTES + 5000):
            found = list(pieces((Extent(Path("x"), first, size, 64),)))
            at = first
            for piece in found:
                assert (piece.offset, piece.target) == (at, 64 + at - first)
                assert 0 < piece.size_bytes <= PIECE_BYTES
                at += piece.size_bytes
            assert at == first + size


def test_copies_on_other_disks_are_read_in_turn(
    make: Make, fake: FakeKvikio, file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(file.read_bytes())
    memory, layers = slots(), layers_of(file)
    reader = make(memory, copy)
    at = reader.acquire(0)
    there = memory.view(-1)[at : at + LAYER_BYTES].numpy().tobytes()
    assert there == content(file, layers[0])
    assert min(reader.bytes_read) > 0
    assert sum(reader.bytes_read) == LAYER_BYTES
    reader.stop()
    assert fake.open_files == 0


def test_what_does_not_come_or_has_changed_is_an_error(
    make: Make, fake: FakeKvikio, file: Path
) -> None:
    fake.most_bytes = 100
    reader = make(slots())
    with pytest.raises(RuntimeError, match=f"from {file} by kvikio .100 of .* bytes came"):
        reader.acquire(0)
    reader.stop()
    fake.most_bytes = 1 << 40
    reader = make(slots())
    reader.acquire(0)
    os.utime(file, ns=(1, 1))
    with pytest.raises(RuntimeError, match=f"{file} has changed while layers were read"):
        reader.acquire(1)
    reader.stop()
    assert fake.open_files == 0


def test_all_of_a_layer_s_reads_have_ended_when_one_has_failed(
    make: Make, fake: FakeKvikio, file: Path
) -> None:
    """Else files are closed, and memory goes back, under those that have not."""
    fake.failing_reads = {0}
    reader = make(slots())
    with pytest.raises(RuntimeError, match=f"from {file} by kvikio .*CU_FILE_IO_ERROR"):
        reader.acquire(0)
    reader.stop()
    assert fake.open_files == 0


def test_reads_that_began_before_one_was_refused_are_waited_for(
    make: Make, fake: FakeKvikio, file: Path
) -> None:
    reader = make(slots())
    reader.acquire(0)
    fake.refused_reads = {len(fake.reads) + 2}
    with pytest.raises(RuntimeError, match=f"from {file} by kvikio .*out of memory"):
        reader.release()
    reader.stop()
    assert fake.open_files == 0


def test_a_reader_that_cannot_begin_leaves_nothing_open(
    make: Make, fake: FakeKvikio, file: Path, tmp_path: Path
) -> None:
    fake.refused_reads = {2}
    with pytest.raises(RuntimeError, match="out of memory"):
        make(slots())
    assert fake.open_files == 0
    copy = tmp_path / "copy"
    copy.write_bytes(file.read_bytes())
    fake.refused_reads, fake.foreign = set(), lambda path: path == str(copy)
    fake.defaults.set("compat_mode", fake.CompatMode.OFF)
    with pytest.raises(
        ConfigError, match=rf"read {copy} .*at: x\.cpp:7: file system not .*keep it"
    ):
        make(slots(), copy)
    assert fake.open_files == 0
    copy.unlink()
    with pytest.raises(ModelError, match=f"from {copy} "):
        make(slots(), copy)
    assert fake.open_files == 0
