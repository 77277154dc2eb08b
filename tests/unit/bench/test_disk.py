"""The disk suite: what its probe accepts, and a run of the smallest model."""

import json
import os
import re
from pathlib import Path

import pytest

from tandem.bench.disk import DiskBench, run_disk
from tandem.bench.host_model import LlamaShape
from tandem.kernels import native
from tandem.probes.disk_probe import DiskProbe, resident_share
from tandem.spec.errors import ConfigError

SMALL = LlamaShape("small", 512, 8, 8, 2, 1408, 256)
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
    caps = (0.6, 0.9)
    bench = DiskBench(SMALL, tmp_path, caps=caps, new_tokens=3, rounds=2, mark="quick: ")
    rows = run_disk(bench, lambda what: None)
    cases = list(dict.fromkeys(row.case for row in rows))
    layer_bytes = 2 * 512 * (512 + 2 * 128 + 512 + 3 * 1408)
    most = layer_bytes * 8
    for case, cap in zip(cases, caps, strict=True):
        found = re.search(r"--host-memory (\d+)MiB, (\d+) of 8 layers on disk", case)
        assert found is not None
        assert int(found[1]) * MIB == pytest.approx(cap * most, rel=0.1)
        on_disk = layer_bytes * int(found[2])
        assert (8 - int(found[2])) * layer_bytes < int(found[1]) * MIB < most
        by_metric = {(row.metric, row.variant): row for row in rows if row.case == case}
        decode = by_metric["decode throughput", "tandem"]
        read = by_metric["weights read", "tandem"]
        disk = by_metric["reading", "disk"]
        memory = by_metric["reading", "host"]
        assert by_metric["reading, beside the host's", "disk"].value > 0
        assert read.bound == pytest.approx(disk.value)
        assert read.value == pytest.approx(decode.value * on_disk / 1e9)
        assert decode.bound is not None
        assert decode.bound < 1 / (on_disk / disk.value / 1e9)
        assert decode.bound > 1 / (on_disk / disk.value / 1e9 + 1e8 / memory.value / 1e9)
        assert by_metric["tokens equal to all layers in memory", "tandem"].value == 1.0
        json.dumps([row.as_json() for row in by_metric.values()], allow_nan=False)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
