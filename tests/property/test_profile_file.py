"""A profile's file: what is written is read back, and nothing else is taken for a profile."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.profiles import KERNELS, MACHINE, profile

from tandem.profiling.measurements import DiskMeasurements, MemoryRates, Striping
from tandem.profiling.profile import FORMAT, Machine
from tandem.profiling.profile_file import (
    check_profile_writable,
    profile_path,
    read_profile,
    to_json,
    write_profile,
)
from tandem.spec.errors import ConfigError

rates = st.floats(1e-3, 1e15)
texts = st.text(max_size=20)


@given(
    st.booleans(),
    st.builds(MemoryRates, rates, rates, rates),
    st.lists(st.builds(DiskMeasurements, texts, rates, rates, texts, rates), max_size=3),
    st.builds(Machine, texts, texts, st.tuples(st.integers(0, 999)), st.integers(1, 999)),
    st.lists(texts, max_size=3),
)
def test_what_is_written_is_read(
    accelerator: bool,
    memory: MemoryRates,
    disks: list[DiskMeasurements],
    machine: Machine,
    skipped: list[str],
) -> None:
    original = profile(accelerator=accelerator)
    original = replace(
        original,
        host=replace(original.host, memory=memory),
        disks=tuple(disks),
        machine=machine,
        skipped=tuple(skipped),
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "profile.json"
        write_profile(original, path)
        assert read_profile(path, machine, KERNELS) == original
        assert [each.name for each in path.parent.iterdir()] == ["profile.json"]


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """To every field and list entry of parsed JSON."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [found for key, each in inner for found in [(*path, key), *paths_of(each, (*path, key))]]


WHOLE = json.loads(to_json(profile(accelerator=True)))
FIELDS = [path for path in paths_of(WHOLE) if isinstance(path[-1], str)]


def damaged(path: tuple[Any, ...], value: Any) -> str:
    """The file with one field changed, or without it where the value is `...`."""
    whole = json.loads(json.dumps(WHOLE))
    holder = whole
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(whole)


def read(tmp_path: Path, text: str, machine: Machine = MACHINE, kernels: str = KERNELS) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    read_profile(path, machine, kernels)


@given(st.sampled_from(FIELDS), st.sampled_from([..., {}, -1e300, [[]], True]))
def test_a_damaged_field_is_corrupt(path: tuple[Any, ...], value: Any) -> None:
    if value is True and path == ("thorough",):
        return
    with TemporaryDirectory() as folder, pytest.raises(ConfigError) as caught:
        read(Path(folder), damaged(path, value))
    assert "run `tandem profile`" in caught.value.message
    assert any(word in caught.value.message for word in ("is corrupt", "is old"))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", f'{{"format": {FORMAT}}}', "[" * 100_000, to_json(profile())[:-20]],
    ids=["empty", "open", "list", "null", "bare", "deep", "cut off"],
)
def test_what_is_no_profile_is_corrupt(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"is corrupt .*run `tandem profile`"):
        read(tmp_path, text)


def test_bytes_that_are_no_text_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is corrupt: not text"):
        read_profile(tmp_path / "profile.json", MACHINE, KERNELS)


def test_shares_of_disks_are_stored_and_checked(tmp_path: Path) -> None:
    two = (profile().disks[0], replace(profile().disks[0], folder="/more"))
    found = replace(profile(), disks=two, striping=Striping((0.25, 0.75), 4e9))
    write_profile(found, tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json", MACHINE, KERNELS) == found
    text = to_json(found)
    with pytest.raises(ConfigError, match=r"is corrupt .*shares must be above 0 and sum to 1"):
        read(tmp_path, text.replace("[0.25, 0.75]", "[0.25, 0.7]"))
    with pytest.raises(ConfigError, match=r"is corrupt .*1 shares for 2 disks"):
        read(tmp_path, text.replace("[0.25, 0.75]", "[1.0]"))


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"host\.luck is no known field"):
        read(tmp_path, damaged(("host", "luck"), 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu": "Other CPU"}, "its cpu: Test CPU, here Other CPU"),
        ({"cores": (0,)}, "its cores: 0,1, here 0"),
        ({"threads": 1}, "its threads: 2, here 1"),
        ({"accelerator": "a card"}, "its accelerator: none, here a card"),
        ({"ranks": 2}, "its ranks: 1, here 2"),
    ],
    ids=["cpu", "cores", "threads", "accelerator", "ranks"],
)
def test_another_machines_profile_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    here = replace(MACHINE, **change)
    with pytest.raises(ConfigError, match=f"of another machine .{words}"):
        read(tmp_path, to_json(profile()), here)
    assert profile_path(tmp_path, here) != profile_path(tmp_path, MACHINE)


def test_an_old_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is old: it was measured with other kernels"):
        read(tmp_path, to_json(profile()), kernels="another")
    with pytest.raises(ConfigError, match="is old: of format 0"):
        read(tmp_path, damaged(("format",), 0))


def test_a_machine_without_a_profile_is_told_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no profile .*run `tandem profile` first"):
        read_profile(tmp_path / "none.json", MACHINE, KERNELS)


def test_a_place_that_cannot_be_written_is_named_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "profile.json"):
        with pytest.raises(ConfigError, match="choose another with --output"):
            check_profile_writable(path)
        with pytest.raises(ConfigError, match="choose another with --output"):
            write_profile(profile(), path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
