"""Tokens stay those of transformers when layers are read from disk in every sweep."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.tiny_models import CASES, Case, build, rotary
from tests.support.engines import model_engine
from transformers import LlamaConfig

from tandem.kernels import native
from tandem.kernels.open_pool import open_pool
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.plan.disk_slots import BLOCK_BYTES, piece_bytes
from tandem.spec.config import DiskIO
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError, ModelError
from tandem.spec.precision import Precision

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

FIVE = Case("llama-5-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=5))
NAMED = {case.id: case for case in (FIVE, *CASES)}
BFLOAT16 = Precision(DType.BFLOAT16, DType.FLOAT32, DType.FLOAT32)
ALONE = {mode.id: mode for mode in MODES if mode.id.startswith("none-")}


class Library:
    """Checkpoints and their references, made once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Reference] = {}

    def get(self, name: str) -> tuple[Path, Reference]:
        directory = self._directory / name
        if name not in self._made:
            directory.mkdir()
            self._made[name] = Reference(build(NAMED[name], directory))
        return directory, self._made[name]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("disk"))


def load(
    directory: Path,
    layers: tuple[int, ...],
    io: DiskIO = "direct",
    precision: Precision | None = None,
) -> Model:
    disk = DiskPlacement(layers, io, (directory / "spool",))
    return load_model(directory, precision, pool=open_pool(), disk=disk)


@pytest.mark.parametrize("name", ["phi3-window", "gemma3-window", "opt-tied", "qwen2-bias"])
def test_architectures(name: str, library: Library, ties: TieCount) -> None:
    directory, reference = library.get(name)
    model = load(directory, tuple(range(len(load_model(directory).weights.layers))))
    with model_engine(model, ALONE["none-batched"].setup) as engine:
        for prompt, tokens in zip(PROMPTS, generate(engine.core, PROMPTS), strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
    assert not list(directory.glob("spool"))  # read as they are
    model.weights.close()


@given(
    layers=st.sets(st.integers(0, 4), min_size=1),
    io=st.sampled_from(["direct", "cached"]),
    mode=st.sampled_from(sorted(ALONE)),
)
@settings(max_examples=12, deadline=None)
def test_any_layers_may_be_on_disk(
    library: Library, ties: TieCount, layers: set[int], io: DiskIO, mode: str
) -> None:
    directory, reference = library.get(FIVE.id)
    model = load(directory, tuple(sorted(layers)), io)
    disk = model.weights.disk
    assert disk is not None
    assert disk.reader is not None
    with model_engine(model, ALONE[mode].setup) as engine:
        for _ in range(2):  # slots are left as the next sweep expects them
            for prompt, tokens in zip(PROMPTS, generate(engine.core, PROMPTS), strict=True):
                assert_greedy_parity(reference, prompt, tokens, ties)
        assert ALONE[mode].happened(engine.stats)
        # nothing is kept but in the slots
        assert sum(disk.reader.bytes_read) >= engine.stats.num_steps * disk.disk_bytes
    model.weights.close()


def test_layers_come_from_copies_on_several_disks(
    library: Library, ties: TieCount, tmp_path: Path
) -> None:
    directory, reference = library.get(FIVE.id)
    copies = tuple(tmp_path / name for name in ("second", "third"))
    for folder in copies:
        shutil.copytree(directory, folder)
    disk = DiskPlacement((0, 1, 3, 4), "direct", (tmp_path / "spool",), copies)
    model = load_model(directory, pool=open_pool(), disk=disk)
    assert model.weights.disk is not None
    reader = model.weights.disk.reader
    assert reader is not None
    with model_engine(model, ALONE["none-batched"].setup) as engine:
        for _ in range(4):
            for prompt, tokens in zip(PROMPTS, generate(engine.core, PROMPTS), strict=True):
                assert_greedy_parity(reference, prompt, tokens, ties)
        read = reader.bytes_read
        assert len(read) == 3
        assert all(read)
        assert sum(read) >= engine.stats.num_steps * model.weights.disk.disk_bytes
    model.weights.close()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.unlink(), "No such file"),
        (lambda file: file.write_bytes(file.read_bytes() + b"x"), "it differs"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b"\x3c", b"\x3d")), "it differs"),
    ],
)
def test_what_is_no_copy_is_refused(
    library: Library, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    directory, _ = library.get(FIVE.id)
    shutil.copytree(directory, tmp_path / "copy")
    damage(next((tmp_path / "copy").glob("*.safetensors")))
    disk = DiskPlacement((0, 1, 2, 3, 4), "direct", (tmp_path / "spool",), (tmp_path / "copy",))
    with pytest.raises(ModelError, match=rf"is no copy of .* \({reason}.*--disk-copies") as error:
        load_model(directory, pool=open_pool(), disk=disk)
    assert "\n" not in error.value.message


@pytest.mark.parametrize("linked", [False, True])
def test_the_file_itself_is_no_copy(library: Library, tmp_path: Path, linked: bool) -> None:
    directory, _ = library.get(FIVE.id)
    folder = tmp_path / "linked" if linked else directory
    folder.mkdir(exist_ok=True)
    for file in directory.glob("*.safetensors") if linked else ():
        (folder / file.name).symlink_to(file)
    disk = DiskPlacement((0, 1), "direct", (tmp_path / "spool",), (folder,))
    with pytest.raises(ModelError, match=r"itself, no copy on another disk; leave .* out"):
        load_model(directory, pool=open_pool(), disk=disk)


@pytest.mark.parametrize("disks", [2, 3])
def test_converted_layers_are_divided_among_several_disks(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disks: int
) -> None:
    """In pieces as small as these layers are."""
    monkeypatch.setattr("tandem.plan.disk_slots._PIECE_BYTES", disks * 12288 - 8192)
    assert piece_bytes(disks) == BLOCK_BYTES
    directory, _ = library.get(FIVE.id)
    spools = tuple(tmp_path / str(n) for n in range(disks))
    striped = DiskPlacement((0, 1, 3, 4), "direct", spools)
    made: list[list[list[int]]] = []
    for disk in (None, striped):
        model = load_model(directory, BFLOAT16, pool=open_pool(), disk=disk)
        with model_engine(model, ALONE["none-batched"].setup) as engine:
            made.append([tokens for _ in range(2) for tokens in generate(engine.core, PROMPTS)])
        model.weights.close()
    assert made[0] == made[1]


def test_converted_weights_have_no_copies(library: Library, tmp_path: Path) -> None:
    directory, _ = library.get(FIVE.id)
    disk = DiskPlacement((1,), "direct", (tmp_path / "spool",), (directory,))
    with pytest.raises(ConfigError, match="with --spool-dir instead, or use the checkpoint's"):
        load_model(directory, BFLOAT16, pool=open_pool(), disk=disk)


def test_weights_of_another_type_are_converted_once(library: Library) -> None:
    directory, _ = library.get(FIVE.id)
    setup = ALONE["none-batched"].setup
    made: list[list[list[int]]] = []
    for layers in ((), (0, 2, 3)):
        model = load(directory, layers, precision=BFLOAT16)
        assert model.weights.outer["embedding"].weight.dtype == torch.bfloat16
        with model_engine(model, setup) as engine:
            made.append(generate(engine.core, PROMPTS))
        model.weights.close()
    assert made[0] == made[1]
    assert not list((directory / "spool").iterdir())  # the file has no name
