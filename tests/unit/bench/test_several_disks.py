"""The disk suite of several disks: which folders it takes, its bounds, and a run of two folders."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.bench.host_model import LlamaShape
from tandem.bench.several_disks import (
    DiskRates,
    SeveralDisksBench,
    folders_of,
    run_several_disks,
)
from tandem.kernels import native
from tandem.probes.disk_probe import DiskProbe
from tandem.spec.errors import ConfigError

SMALL = LlamaShape("small", 512, 8, 8, 2, 1408, 256)
MIB = 1 << 20


@given(st.lists(st.floats(1e6, 1e11), min_size=2, max_size=4))
def test_shares_are_of_the_whole(each: list[float]) -> None:
    rates = DiskRates(tuple(each), tuple(each))
    assert sum(rates.shares) == pytest.approx(1.0)


def test_bounds_are_of_what_disks_give_at_once() -> None:
    rates = DiskRates(alone=(3.0, 6.0), at_once=(2.0, 6.0))
    assert (rates.together, rates.shares) == (8.0, (0.25, 0.75))


def test_a_folder_by_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="named twice") as refused:
        folders_of([tmp_path, tmp_path / "link"])
    assert refused.value.param == "dir"


@pytest.mark.skipif(not native.available(), reason="layers on disk need the compiled kernels")
def test_every_way_to_read_is_told(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    try:
        DiskProbe(tmp_path, 64 * MIB).close()
    except ConfigError as error:
        pytest.skip(str(error))
    bench = SeveralDisksBench(SMALL, folders, cap=0.6, new_tokens=3, rounds=2)
    rows = run_several_disks(bench, lambda what: None)
    assert {row.case.rpartition(", ")[2] for row in rows} == {"8 of 8 layers on 2 disks"}
    found = {(row.metric, row.variant): row for row in rows}
    at_once = [found["reading, all at once", f"disk {number}"].value for number in (1, 2)]
    assert found["weights read", "tandem, copies"].bound == pytest.approx(sum(at_once))
    assert found["weights read", "tandem, stripes"].bound == pytest.approx(sum(at_once))
    shares = [found[f"share of bytes from disk {n}", "tandem, copies"] for n in (1, 2)]
    assert sum(row.value for row in shares) == pytest.approx(1.0)
    assert shares[0].bound == pytest.approx(at_once[0] / sum(at_once))
    gain = found["throughput over disk 1 alone", "tandem, copies"]
    assert gain.bound == pytest.approx(sum(at_once) / found["reading", "disk 1"].value)
    for variant in ("disk 1 alone", "disk 2 alone", "copies", "stripes"):
        equal = found["tokens equal to all layers in memory", f"tandem, {variant}"]
        assert equal.value == 1.0
    json.dumps([row.as_json() for row in rows], allow_nan=False)
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
