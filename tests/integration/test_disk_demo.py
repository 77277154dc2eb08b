"""The demo model in less host memory than it takes, and what happens to files meanwhile."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.four_requests import generate, serve

from tandem.engine.building.build import build_engine_core
from tandem.kernels import native
from tandem.models.resolve import resolve_model
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError, EngineDeadError, ModelError
from tandem.spec.units import parse_size

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

AMPLE = EngineConfig(
    "demo",
    accelerator="none",
    cpu_memory="256MiB",
    block_size=16,
    max_model_len=200,
    max_num_seqs=4,
    max_num_batched_tokens=64,
)


def placed(tmp_path: Path, *layers: int) -> str:
    path = tmp_path / "placement.json"
    runs = [{"first_layer": i, "last_layer": i, "home": "disk"} for i in layers]
    path.write_text(json.dumps({"layers": runs}))
    return str(path)


def least_memory(config: EngineConfig) -> str:
    """What a refusal names as enough."""
    with pytest.raises(ConfigError, match="even with every layer read from disk") as error:
        build_engine_core(replace(config, cpu_memory="1MiB"))
    return str(error.value).partition("--cpu-memory ")[2].split()[0]


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    return serve(AMPLE)[0]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The demo model in files that a test may spoil."""
    return Path(shutil.copytree(resolve_model("demo"), tmp_path / "model"))


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_tokens_are_the_same_and_memory_is_kept(dtype: str, tmp_path: Path) -> None:
    config = replace(AMPLE, dtype=dtype, spool_dir=str(tmp_path))
    expected, ample = serve(config)
    tokens, stats = serve(replace(config, cpu_memory=least_memory(config)))
    assert tokens == expected
    assert not any("stay on disk" in note for note in ample.notes)
    assert any("stay on disk" in note for note in stats.notes)
    rows = {(row.location, row.label): row for row in stats.memory}
    for key in (("host", "weights"), ("host", "weight slots"), ("disk", "weights")):
        assert rows[key].actual_bytes == rows[key].predicted_bytes
    assert sum(r.predicted_bytes for r in rows.values() if r.label == "weights") == sum(
        row.predicted_bytes for row in ample.memory if row.label == "weights"
    )
    assert not list(tmp_path.iterdir())


@given(st.integers(0, 10 << 20))
@settings(max_examples=8, deadline=None)
def test_tokens_are_the_same_in_any_memory(expected: dict[str, list[int]], more: int) -> None:
    cap = parse_size(least_memory(AMPLE)) + more
    tokens, stats = serve(replace(AMPLE, cpu_memory=str(cap)))
    assert tokens == expected
    host = next(each for each in stats.memory_totals if each.location == "host")
    on_top = ("process", "libraries", "kept by malloc", "kernel buffers", "kernel")
    beside = sum(row.predicted_bytes for row in stats.memory if row.label in on_top)
    assert host.predicted_bytes - beside <= cap


def test_dummy_weights_are_the_same_on_disk(tmp_path: Path) -> None:
    config = replace(AMPLE, load_format="dummy", spool_dir=str(tmp_path / "spool"))
    expected, _ = serve(config)
    config = replace(config, placement=placed(tmp_path, 0, 3, 5))
    tokens, _ = serve(config)
    assert tokens == expected
    several = [tmp_path / name for name in ("spool", "second", "third")]
    tokens, stats = serve(replace(config, spool_dir=":".join(map(str, several))))
    assert tokens == expected
    rows = {(row.location, row.label): row for row in stats.memory}
    assert rows["host", "weight slots"].actual_bytes == rows["host", "weight slots"].predicted_bytes
    for names, message in (
        (f"{tmp_path}:{tmp_path}", "--spool-dir .* names a folder twice; name each once"),
        (":".join(f"/nowhere/{i}" for i in range(5)), "5 folders, .* from at most 4 disks"),
    ):
        with pytest.raises(ConfigError, match=message) as error:
            build_engine_core(replace(config, spool_dir=names))
        assert error.value.param == "spool_dir"


def test_layers_come_from_several_disks(
    expected: dict[str, list[int]], copied: Path, tmp_path: Path
) -> None:
    config = replace(AMPLE, placement=placed(tmp_path, 0, 3, 5))
    tokens, stats = serve(replace(config, disk_copies=str(copied)))
    assert tokens == expected
    rows = {(row.location, row.label): row for row in stats.memory}
    assert rows["host", "weight slots"].actual_bytes == rows["host", "weight slots"].predicted_bytes
    for names, message in (
        (f"{copied}:{copied}", "names a folder twice; name each once"),
        (":".join(f"/nowhere/{i}" for i in range(4)), "4 folders, .* from at most 4 disks"),
    ):
        with pytest.raises(ConfigError, match=message) as error:
            build_engine_core(replace(config, disk_copies=names))
        assert error.value.param == "disk_copies"
    with pytest.raises(ModelError, match=r"/nowhere/model.* is no copy of .* \(No such file"):
        build_engine_core(replace(config, disk_copies="/nowhere"))


def test_options_about_disks_that_nothing_is_read_from_are_said_to_change_nothing(
    copied: Path,
) -> None:
    core = build_engine_core(replace(AMPLE, disk_copies=str(copied), disk_io="cached"))
    try:
        told = [note for note in core.stats().notes if "--disk" in note]
        assert [note.split(": ")[0] for note in told] == [
            "--disk-copies changes nothing",
            "--disk-io changes nothing",
        ]
    finally:
        core.close()


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 8)


def overwrite(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        stream.write(b"nothing of a model")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(cut, "model.safetensors was c"), (overwrite, "model.safetensors was changed")],
)
@pytest.mark.parametrize("option", ["model", "disk_copies"])
def test_a_file_that_changes_ends_the_run(
    copied: Path, tmp_path: Path, option: str, spoil: Callable[[Path], None], message: str
) -> None:
    config = replace(AMPLE, placement=placed(tmp_path, *range(6)), **{option: str(copied)})
    core = build_engine_core(config)
    try:
        generate(core)
        spoil(copied / "model.safetensors")
        with pytest.raises(EngineDeadError, match=f"{copied}/{message}"):
            generate(core)
    finally:
        core.close()


def test_a_deleted_file_is_read_on(copied: Path, tmp_path: Path) -> None:
    config = replace(AMPLE, model=str(copied), placement=placed(tmp_path, *range(6)))
    core = build_engine_core(config)
    try:
        expected = generate(core)
        shutil.rmtree(copied)
        assert generate(core) == expected
    finally:
        core.close()


def test_refused_direct_reads_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    real = os.preadv

    def refuse(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", refuse)
    config = replace(AMPLE, placement=placed(tmp_path, 1, 2))
    with pytest.raises(
        ConfigError, match=r"model\.safetensors refuses .*--disk-io cached"
    ) as error:
        build_engine_core(config)
    assert error.value.param == "disk_io"
    assert serve(replace(config, disk_io="cached"))[0] == expected


def test_a_folder_that_cannot_take_converted_layers_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = replace(AMPLE, dtype="float32", placement=placed(tmp_path, 1, 2))
    with pytest.raises(ConfigError, match="--spool-dir"):
        build_engine_core(replace(config, spool_dir=str(tmp_path / "placement.json")))
    full = os.statvfs_result((4096, 4096, 10, 1, 1, 10, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(ConfigError, match=r"has 4\.0 KiB free") as error:
        build_engine_core(replace(config, spool_dir=str(tmp_path / "spool")))
    assert error.value.param == "spool_dir"
    assert not list((tmp_path / "spool").iterdir())


def test_without_the_compiled_kernels_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "reason_against", lambda head_dim: "no compiler.")
    with pytest.raises(ConfigError, match="reading them from disk needs the compiled kernels"):
        build_engine_core(replace(AMPLE, placement=placed(tmp_path, 1)))
