"""What a layer on disk is read from."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from tandem.models.disk_extents import Extent, base_of, merged
from tandem.models.shard_header import tensor_places
from tandem.plan.disk_slots import BLOCK_BYTES
from tandem.spec.errors import ModelError

FILE = Path("file")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=8))
def test_neighbours_are_read_as_one(runs: list[tuple[int, int]]) -> None:
    extents: list[Extent] = []
    offset = target = 0
    for gap, size in runs:  # a gap in the file is none in memory
        offset += gap
        extents.append(Extent(FILE, offset, size, target))
        offset, target = offset + size, target + size
    joined = merged(reversed(extents))
    expected = {e.offset + i: e.target + i for e in extents for i in range(e.size_bytes)}
    assert expected == {e.offset + i: e.target + i for e in joined for i in range(e.size_bytes)}
    assert len(joined) == 1 + sum(gap > 0 for gap, _ in runs[1:])


def test_files_are_kept_apart() -> None:
    extents = (Extent(Path("b"), 4, 4, 4), Extent(Path("a"), 0, 4, 0))
    assert merged(extents) == (extents[1], extents[0])


def test_a_layer_begins_where_most_of_it_needs_no_copy() -> None:
    small, large = Extent(FILE, 8, 100, 0), Extent(FILE, 1000, 200, 100)
    assert base_of((small,)) == 8
    assert base_of((small, large)) == 900
    assert base_of((Extent(FILE, 6, 10, 50),)) == BLOCK_BYTES - 44
    assert base_of((Extent(FILE, 5, 10, 50),)) == 0  # elements stay aligned


def test_places_are_where_the_bytes_are(tmp_path: Path) -> None:
    tensors = {f"t{i}": torch.randn(3 + i, 5) for i in range(4)}
    file = tmp_path / "model.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    content = file.read_bytes()
    places = tensor_places(file)
    assert places.keys() == tensors.keys()
    for name, tensor in tensors.items():
        place = places[name]
        found = content[place.offset : place.offset + place.size_bytes]
        assert found == tensor.numpy().tobytes()


@pytest.mark.parametrize("header", [b"", b"{", b"[]", b'{"t": {}}', json.dumps({"t": 1}).encode()])
def test_a_header_that_is_none_is_an_error(tmp_path: Path, header: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        tensor_places(file)
