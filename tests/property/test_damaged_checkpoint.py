"""Whatever has happened to a checkpoint's bytes, it loads, or one line says what is wrong."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.parity.published_checkpoint import FILE, write
from tests.parity.published_formats import fp8, gptq
from tests.parity.tiny_models import Case, build, rotary
from transformers import LlamaConfig

from tandem.models.load import load_model
from tandem.spec.dtype import DType
from tandem.spec.errors import TandemError

SMALL = Case("llama-small", rotary(LlamaConfig, 32, 2, 1, 16, num_hidden_layers=1))
GROUPED = Case(
    "llama-grouped", rotary(LlamaConfig, 64, 2, 1, 32, intermediate_size=64, num_hidden_layers=1)
)


class Victim:
    """A checkpoint, and its file as it was."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / FILE
        self.whole = self.file.read_bytes()
        self.data_at = 8 + int.from_bytes(self.whole[:8], "little")

    @property
    def header(self) -> dict[str, Any]:
        return json.loads(self.whole[8 : self.data_at])

    def replace_header(self, text: bytes) -> None:
        self.file.write_bytes(len(text).to_bytes(8, "little") + text + self.whole[self.data_at :])

    def load(self) -> None:
        """Loads, or fails as it should."""
        message = "loaded"
        try:
            load_model(self.directory, DType.FLOAT32)
        except TandemError as error:
            message = error.message
        assert message.isprintable(), message


def make_plain(directory: Path) -> None:
    """16 bits, as most are."""
    build(SMALL, directory)
    stored = {name: tensor.bfloat16() for name, tensor in load_file(directory / FILE).items()}
    save_file(stored, directory / FILE)


MAKERS: dict[str, Callable[[Path], object]] = {
    "bfloat16": make_plain,
    "gptq": lambda directory: write(directory, gptq(4, 32), case=GROUPED),
    "fp8": lambda directory: write(directory, fp8("channel"), case=GROUPED),
}


@pytest.fixture(scope="module", params=sorted(MAKERS))
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Victim:
    directory = tmp_path_factory.mktemp(request.param)
    MAKERS[request.param](directory)
    return Victim(directory)


def flipped(data: bytes, places: list[tuple[float, int]], first: int, end: int) -> bytes:
    """With some bits between two offsets turned over."""
    changed = bytearray(data)
    for share, bit in places:
        changed[first + min(int(share * (end - first)), end - first - 1)] ^= 1 << bit
    return bytes(changed)


FLIPS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), min_size=1, max_size=4)


@settings(max_examples=40)
@given(places=FLIPS)
def test_bits_of_the_data(victim: Victim, places: list[tuple[float, int]]) -> None:
    victim.file.write_bytes(flipped(victim.whole, places, victim.data_at, len(victim.whole)))
    victim.load()


@settings(max_examples=80)
@given(places=FLIPS)
def test_bits_of_the_header(victim: Victim, places: list[tuple[float, int]]) -> None:
    victim.file.write_bytes(flipped(victim.whole, places, 0, victim.data_at))
    victim.load()


NUMBERS = st.one_of(
    st.integers(-2, 300), st.sampled_from([2**31, 2**63, 2**64, 10**30]), st.none(), st.text()
)
ODD = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, max_size=4),
    st.sampled_from(["F32", "F16", "BF16", "I32", "I64", "F8_E4M3", "F8_E5M2", "U8", "BOOL", "F4"]),
    st.dictionaries(st.text(max_size=3), NUMBERS, max_size=2),
)


@settings(max_examples=80)
@given(data=st.data())
def test_fields_of_the_header(victim: Victim, data: st.DataObject) -> None:
    header = victim.header
    tensors = sorted(name for name in header if name != "__metadata__")
    for name in data.draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=3, unique=True)):
        what = data.draw(
            st.sampled_from(["name", "drop", "entry", "dtype", "shape", "data_offsets"])
        )
        entry = header[name]
        if what == "name":
            del header[name]
            header[data.draw(st.text(max_size=8))] = entry
        elif what == "drop":
            del header[name]
        elif what == "entry":
            header[name] = data.draw(ODD)
        else:
            header[name] = {**entry, what: data.draw(ODD)}
    victim.replace_header(json.dumps(header).encode())
    victim.load()


@settings(max_examples=30)
@given(share=st.floats(0, 1), tail=st.binary(max_size=40))
def test_files_that_are_cut_off_or_go_on(victim: Victim, share: float, tail: bytes) -> None:
    victim.file.write_bytes(victim.whole[: int(share * len(victim.whole))] + tail)
    victim.load()


@settings(max_examples=60)
@given(data=st.data())
def test_fields_of_the_quantization(victim: Victim, data: st.DataObject) -> None:
    victim.file.write_bytes(victim.whole)
    path = victim.directory / "config.json"
    text = path.read_text()
    values = json.loads(text)
    section = values.setdefault("quantization_config", {})
    while "config_groups" in section and data.draw(st.booleans()):
        section = data.draw(st.sampled_from([*_sections(section)]))
    section[data.draw(st.sampled_from(sorted(section) or ["quant_method"]))] = data.draw(ODD)
    path.write_text(json.dumps(values))
    try:
        victim.load()
    finally:
        path.write_text(text)


def _sections(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """It, and all objects in it."""
    yield values
    for value in values.values():
        if isinstance(value, dict):
            yield from _sections(value)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["model.layers.0.mlp.up_proj.weight", "model.norm.weight"])
def test_numbers_that_are_not_finite_are_named(
    name: str, dtype: torch.dtype, value: float, tmp_path: Path
) -> None:
    build(SMALL, tmp_path)
    stored = {n: tensor.to(dtype) for n, tensor in load_file(tmp_path / FILE).items()}
    stored[name].view(-1)[7] = value
    save_file(stored, tmp_path / FILE)
    with pytest.raises(TandemError, match=f"'{name}' .*not finite; download the file again"):
        load_model(tmp_path)


def test_large_numbers_are_not_taken_for_infinite_ones(tmp_path: Path) -> None:
    build(SMALL, tmp_path)
    stored = {n: tensor.half() for n, tensor in load_file(tmp_path / FILE).items()}
    stored["model.norm.weight"].fill_(60000.0)  # whose sum float16 does not hold
    save_file(stored, tmp_path / FILE)
    load_model(tmp_path)
