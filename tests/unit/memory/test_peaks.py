"""Host memory facts from fake `/proc` and `/sys` trees."""

from pathlib import Path

import pytest

from tandem.memory.cgroup import read_cgroups
from tandem.memory.peaks import read_host_memory
from tandem.spec.errors import ConfigError

KIB = 1 << 10
V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/self/status", "Name:\tpython\nVmHWM:\t 900 kB\nVmRSS:\t 700 kB\n")
    write(tmp_path, "proc/meminfo", "MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable: 5000 kB\n")
    return tmp_path


def write(root: Path, name: str, text: str | int) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def v2_group(root: Path, folder: str, limit: str | int, current: int, **more: int) -> None:
    write(root, f"{V2}/{folder}/memory.max", limit)
    write(root, f"{V2}/{folder}/memory.current", current)
    for name, value in more.items():
        write(root, f"{V2}/{folder}/memory.{name}", value)


def test_no_cgroup(root: Path) -> None:
    memory = read_host_memory(root)
    assert (memory.rss_bytes, memory.peak_rss_bytes) == (700 * KIB, 900 * KIB)
    assert (memory.total_bytes, memory.free_bytes) == (8000 * KIB, 5000 * KIB)
    assert memory.available_bytes == 5000 * KIB
    assert memory.capacity_bytes == 8000 * KIB
    assert memory.cgroup_limit_bytes is None
    assert memory.cgroup_peak_bytes is None


def test_v2_limit_bounds_what_is_available(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/")
    v2_group(root, "", 4000 * KIB, 1500 * KIB, peak=3000 * KIB)
    memory = read_host_memory(root)
    assert memory.available_bytes == 2500 * KIB
    assert memory.capacity_bytes == 4000 * KIB
    assert memory.cgroup_limit_bytes == 4000 * KIB
    assert memory.cgroup_current_bytes == 1500 * KIB
    assert memory.cgroup_peak_bytes == 3000 * KIB


@pytest.mark.parametrize("most", [4000 * KIB, "max"])
def test_a_group_that_is_throttled_earlier_has_that_much(root: Path, most: int | str) -> None:
    write(root, "proc/self/cgroup", "0::/")
    v2_group(root, "", most, 1500 * KIB, high=3000 * KIB)
    memory = read_host_memory(root)
    assert memory.available_bytes == 1500 * KIB
    assert memory.cgroup_limit_bytes == 3000 * KIB


def test_machine_with_less_left_than_the_limit(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/")
    v2_group(root, "", 7000 * KIB, 0)
    assert read_host_memory(root).available_bytes == 5000 * KIB


def test_unlimited_group_still_tells_its_use(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/")
    v2_group(root, "", "max", 10 * KIB, peak=20 * KIB)
    memory = read_host_memory(root)
    assert memory.cgroup_limit_bytes is None
    assert memory.available_bytes == 5000 * KIB
    assert (memory.cgroup_current_bytes, memory.cgroup_peak_bytes) == (10 * KIB, 20 * KIB)


def test_ancestors_limits_apply(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/jobs/mine")
    v2_group(root, "jobs/mine", "max", 100 * KIB)
    v2_group(root, "jobs", 2000 * KIB, 1200 * KIB, peak=1900 * KIB)
    memory = read_host_memory(root)
    assert memory.available_bytes == 800 * KIB
    assert memory.cgroup_limit_bytes == 2000 * KIB
    assert memory.cgroup_peak_bytes == 1900 * KIB


def test_the_fullest_group_bounds_though_another_has_the_lower_limit(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/jobs/mine")
    v2_group(root, "jobs/mine", 2000 * KIB, 100 * KIB)
    v2_group(root, "jobs", 3000 * KIB, 2900 * KIB)
    memory = read_host_memory(root)
    assert memory.cgroup_limit_bytes == 2000 * KIB
    assert memory.available_bytes == 100 * KIB


@pytest.mark.parametrize("path", ["/docker/0123abc", "/../../outside"])
def test_container_that_sees_only_its_own_group(root: Path, path: str) -> None:
    write(root, "proc/self/cgroup", f"0::{path}")
    v2_group(root, "", 4000 * KIB, 1000 * KIB)
    assert read_host_memory(root).available_bytes == 3000 * KIB


def test_inactive_file_pages_count_as_available(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/")
    v2_group(root, "", 4000 * KIB, 3500 * KIB)
    write(root, f"{V2}/memory.stat", f"anon 1\ninactive_file {2000 * KIB}\nactive_file 7")
    assert read_host_memory(root).available_bytes == 2500 * KIB


def test_use_above_the_limit_leaves_nothing(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/")
    v2_group(root, "", 1000 * KIB, 1001 * KIB)
    assert read_host_memory(root).available_bytes == 0


def test_v1_hierarchy(root: Path) -> None:
    write(root, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/other")
    write(root, f"{V1}/docker/abc/memory.limit_in_bytes", 3000 * KIB)
    write(root, f"{V1}/docker/abc/memory.usage_in_bytes", 1000 * KIB)
    write(root, f"{V1}/docker/abc/memory.max_usage_in_bytes", 1800 * KIB)
    write(root, f"{V1}/docker/abc/memory.stat", f"total_inactive_file {500 * KIB}")
    write(root, f"{V1}/memory.limit_in_bytes", 9223372036854771712)
    write(root, f"{V1}/memory.usage_in_bytes", 6000 * KIB)
    memory = read_host_memory(root)
    assert memory.cgroup_limit_bytes == 3000 * KIB
    assert memory.available_bytes == 2500 * KIB
    assert memory.cgroup_peak_bytes == 1800 * KIB
    assert [g.limit_bytes for g in read_cgroups(root)] == [3000 * KIB, None]


def test_a_system_without_proc_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*status: .*; Tandem needs Linux"):
        read_host_memory(tmp_path)


def test_missing_field_is_named(root: Path) -> None:
    write(root, "proc/meminfo", "MemTotal: 8000 kB")
    with pytest.raises(ConfigError, match="does not tell MemAvailable"):
        read_host_memory(root)


def test_this_machine() -> None:
    memory = read_host_memory()
    assert 0 < memory.rss_bytes <= memory.peak_rss_bytes
    assert 0 < memory.available_bytes <= memory.free_bytes <= memory.total_bytes
