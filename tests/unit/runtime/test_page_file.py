"""Blocks on a disk: what is not as it was written is told, and nobody else gets at it."""

import json
import os
import stat
from pathlib import Path

import pytest

from tandem.memory.disk_index import DiskIndex
from tandem.runtime.page_file import PageFile
from tandem.runtime.page_folder import Layout
from tandem.spec.errors import ConfigError

LAYOUT: Layout = {"model": "a", "block size": 16}
BLOCK_BYTES, SLOTS = 5000, 4
SIZE = 16384 + SLOTS * (8192 + 32)


def opened(folder: Path, size: int = SIZE, layout: Layout = LAYOUT) -> PageFile:
    return PageFile(folder / "kv", layout, BLOCK_BYTES, size)


def block(number: int) -> list[memoryview]:
    """Two layers' pages."""
    return [memoryview(bytes([number + layer]) * (BLOCK_BYTES // 2)) for layer in (0, 100)]


def digest(number: int) -> bytes:
    return bytes([number]) * 16


def put(file: PageFile, slot: int, number: int, age: int = 1) -> int:
    return file.write(slot, digest(number), age, block(number))


def got(file: PageFile, slot: int, number: int, checksum: int) -> list[bytes] | None:
    parts = [memoryview(bytearray(BLOCK_BYTES // 2)) for _ in range(2)]
    sound = file.read(slot, digest(number), checksum, parts)
    return [bytes(part) for part in parts] if sound else None


def test_a_block_comes_back_in_this_engine_and_the_next(tmp_path: Path) -> None:
    file = opened(tmp_path)
    checksums = [put(file, slot, slot, age=slot + 1) for slot in range(SLOTS)]
    for slot, checksum in enumerate(checksums):
        assert got(file, slot, slot, checksum) == [bytes(part) for part in block(slot)]
    file.close()
    file = opened(tmp_path)
    stored = list(file.stored())
    assert [(e.slot, e.digest, e.age, e.checksum) for e in stored] == [
        (slot, digest(slot), slot + 1, checksums[slot]) for slot in range(SLOTS)
    ]
    assert got(file, 2, 2, stored[2].checksum) == [bytes(part) for part in block(2)]
    file.close()


@pytest.mark.parametrize("place", [0, 1, 2499, 2500, 4999])
def test_a_flipped_bit_is_found(place: int, tmp_path: Path) -> None:
    file = opened(tmp_path)
    checksum = put(file, 1, 7)
    with (tmp_path / "kv" / "tandem-kv.pages").open("r+b") as pages:
        pages.seek(8192 + place)
        byte = pages.read(1)[0]
        pages.seek(8192 + place)
        pages.write(bytes([byte ^ 16]))
    assert got(file, 1, 7, checksum) is None
    file.close()


def test_a_block_in_another_ones_slot_is_found(tmp_path: Path) -> None:
    file = opened(tmp_path)
    checksum = put(file, 0, 7)
    assert got(file, 0, 8, checksum) is None
    put(file, 0, 9)
    assert got(file, 0, 7, checksum) is None
    file.close()


def test_a_cut_file_loses_its_end(tmp_path: Path) -> None:
    file = opened(tmp_path)
    checksums = [put(file, slot, slot) for slot in range(SLOTS)]
    os.truncate(tmp_path / "kv" / "tandem-kv.pages", 8192 + 4999)
    assert got(file, 0, 0, checksums[0]) is not None
    assert got(file, 1, 1, checksums[1]) is None
    assert got(file, 3, 3, checksums[3]) is None
    file.close()
    file = opened(tmp_path)
    assert [entry.slot for entry in file.stored()] == [0]
    file.close()


@pytest.mark.parametrize("place", range(0, 32, 5))
def test_a_damaged_entry_is_none(place: int, tmp_path: Path) -> None:
    file = opened(tmp_path)
    put(file, 0, 0)
    put(file, 1, 1)
    file.close()
    index = tmp_path / "kv" / "tandem-kv.index"
    text = bytearray(index.read_bytes())
    text[32 + place] ^= 1
    index.write_bytes(text)
    file = opened(tmp_path)
    assert [entry.slot for entry in file.stored()] == [0]
    file.close()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path)
    put(file, 0, 0)
    whole = os.pwritev

    def half(descriptor: int, parts: list[memoryview], offset: int) -> int:
        if sum(map(len, parts)) < 1000:
            return whole(descriptor, parts, offset)
        whole(descriptor, [parts[0][:100]], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", half)
    with pytest.raises(OSError, match="No space"):
        put(file, 0, 1)
    assert list(file.stored()) == []
    file.close()


def test_short_writes_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, reads = os.pwritev, os.preadv
    monkeypatch.setattr(os, "pwritev", lambda f, parts, at: writes(f, [parts[0][:700]], at))
    monkeypatch.setattr(os, "preadv", lambda f, parts, at: reads(f, [parts[0][:900]], at))
    file = opened(tmp_path)
    assert got(file, 2, 5, put(file, 2, 5)) == [bytes(part) for part in block(5)]
    file.close()


def test_a_smaller_size_cuts_and_a_larger_one_keeps(tmp_path: Path) -> None:
    file = opened(tmp_path)
    for slot in range(SLOTS):
        put(file, slot, slot)
    file.close()
    for size, left in ((SIZE - 2 * (8192 + 32), 2), (2 * SIZE, 2)):
        file = opened(tmp_path, size)
        assert len(list(file.stored())) == left
        assert sum(each.stat().st_size for each in (tmp_path / "kv").iterdir()) <= size
        file.close()


# --- whose folder it is -----------------------------------------------------------------------


def refusal(folder: Path, layout: Layout = LAYOUT) -> str:
    with pytest.raises(ConfigError) as caught:
        opened(folder, layout=layout)
    return caught.value.message


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    file = opened(tmp_path)
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700
    for each in (tmp_path / "kv").iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    file.close()


def test_one_engine_at_a_time(tmp_path: Path) -> None:
    file = opened(tmp_path)
    assert "in use by another engine" in refusal(tmp_path)
    file.close()
    opened(tmp_path).close()


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv").chmod(0o777)
    assert "other users" in refusal(tmp_path)
    (tmp_path / "kv").chmod(0o755)
    opened(tmp_path).close()


@pytest.mark.parametrize("name", ["tandem-kv.pages", "tandem-kv.index", "tandem-kv.json"])
def test_links_are_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir(mode=0o700)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "kv" / name).symlink_to(precious)
    assert "cannot be used" in refusal(tmp_path)
    (tmp_path / "kv" / name).unlink()
    os.link(precious, tmp_path / "kv" / name)
    assert "no file of this user's alone" in refusal(tmp_path)
    assert precious.read_text() == "mine"


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("")
    assert "cannot be used" in refusal(tmp_path)


def test_blocks_of_another_model_are_kept_for_it(tmp_path: Path) -> None:
    file = opened(tmp_path)
    put(file, 0, 0)
    file.close()
    assert "holds KV of another block size: 16, not 32" in refusal(
        tmp_path, {**LAYOUT, "block size": 32}
    )
    file = opened(tmp_path)
    assert len(list(file.stored())) == 1
    file.close()


def test_a_folder_without_a_block_is_anybody_s(tmp_path: Path) -> None:
    opened(tmp_path).close()
    other: Layout = {**LAYOUT, "block size": 32}
    file = opened(tmp_path, layout=other)
    put(file, 0, 0)
    file.close()
    assert "holds KV of another block size: 32, not 16" in refusal(tmp_path)


def test_another_version_and_a_damaged_description_are_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    about = tmp_path / "kv" / "tandem-kv.json"
    said = json.loads(about.read_text())
    about.write_text(json.dumps({**said, "format": 2}))
    assert "another version (format 2)" in refusal(tmp_path)
    for text in ("{", "[]", "\x00" * 50):
        about.write_text(text)
        assert "is damaged" in refusal(tmp_path)


def test_files_without_a_description_are_begun_anew(tmp_path: Path) -> None:
    file = opened(tmp_path)
    put(file, 0, 0)
    file.close()
    (tmp_path / "kv" / "tandem-kv.json").unlink()  # made last: the engine was killed before
    file = opened(tmp_path)
    assert list(file.stored()) == []
    file.close()


def test_a_size_that_holds_no_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not hold one KV block; raise it to 24\.\d KiB"):
        opened(tmp_path, 20000)


def test_of_two_slots_with_one_digest_the_later_counts(tmp_path: Path) -> None:
    file = opened(tmp_path)
    put(file, 0, 0, age=5)
    put(file, 1, 0, age=4)
    index = DiskIndex(SLOTS, file.stored())
    index.check()
    found = index.find(digest(0))
    assert found is not None
    assert found.slot == 0
    assert len(index) == 1
    file.close()
