"""The disk suite: what its probe accepts, and a run of the smallest model."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.bench.disk import DiskBench, run_disk
from tandem.bench.host_model import LlamaShape
from tandem.kernels import native
from tandem.probes.disk_probe import DiskProbe, resident_share
from tandem.spec.errors import ConfigError

TINY = LlamaShape("tiny", 64, 3, 4, 2, 128, 256)
MIB = 1 << 20


def test_pages_in_memory_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(MIB))
    with path.open("r+b") as file:
        assert resident_share(file.fileno(), MIB) == 1.0
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        left = resident_share(file.fileno(), MIB)
    assert left in (0.0, 1.0)  # of tmpfs nothing can be put out


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="name another folder"):
        DiskProbe(tmp_path / "file", 64 * MIB)


@pytest.mark.skipif(not native.available(), reason="layers on disk need the compiled kernels")
def test_figures_stand_beside_what_was_probed(tmp_path: Path) -> None:
    try:
        DiskProbe(tmp_path, 64 * MIB).close()
    except ConfigError as error:
        pytest.skip(str(error))
    bench = DiskBench(TINY, tmp_path, resident=(0, 3), new_tokens=3, rounds=2, mark="quick: ")
    rows = run_disk(replace(bench, probe_bytes=64 * MIB), lambda what: None)
    cases = list(dict.fromkeys(row.case for row in rows))
    assert [case.rpartition(", ")[2] for case in cases] == [
        "3 of 3 layers on disk",
        "2 of 3 layers on disk",
    ]
    for case in cases:
        by_metric = {(row.metric, row.variant): row for row in rows if row.case == case}
        decode = by_metric["decode throughput", "tandem"]
        read = by_metric["weights read", "tandem"]
        disk = by_metric["reading", "disk"]
        memory = by_metric["reading", "host"]
        assert by_metric["reading, beside the host's", "disk"].value > 0
        assert read.bound == pytest.approx(disk.value)
        layer_bytes = 2 * 64 * (64 + 2 * 32 + 64 + 3 * 128)
        on_disk = layer_bytes * (3 if case == cases[0] else 2)
        assert read.value == pytest.approx(decode.value * on_disk / 1e9)
        assert decode.bound is not None
        assert decode.bound < 1 / (on_disk / disk.value / 1e9)
        assert decode.bound > 1 / (on_disk / disk.value / 1e9 + 1e7 / memory.value / 1e9)
        assert by_metric["tokens equal to all layers in memory", "tandem"].value == 1.0
        json.dumps([row.as_json() for row in by_metric.values()], allow_nan=False)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
