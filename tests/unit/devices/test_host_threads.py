"""Cores that a process may use, and OpenMP's waiting."""

import os
from pathlib import Path

import pytest
import torch

from tandem.devices import cpu
from tandem.devices.host_threads import usable_cores, wait_calmly


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_quota_the_affinity_mask_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 8
    write(tmp_path, "proc/self/cgroup", "0::/a\n")
    write(tmp_path, "sys/fs/cgroup/a/cpu.max", "max 100000\n")
    assert usable_cores(tmp_path) == 8


@pytest.mark.parametrize(("quota", "cores"), [(150000, 1), (300000, 3), (1000, 1), (5000000, 8)])
def test_the_tightest_quota_of_all_groups_bounds_it(tmp_path: Path, quota: int, cores: int) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/a/b\n")
    write(tmp_path, "sys/fs/cgroup/a/b/cpu.max", "600000 100000\n")
    write(tmp_path, "sys/fs/cgroup/a/cpu.max", f"{quota} 100000\n")
    assert usable_cores(tmp_path) == min(cores, 6)


def test_version_1_is_read_too(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/a\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n")
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
    assert usable_cores(tmp_path) == 2
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n")
    assert usable_cores(tmp_path) == 8


def test_threads_sleep_soon_unless_the_user_decided() -> None:
    environment: dict[str, str] = {}
    wait_calmly(environment)
    assert list(environment) == ["GOMP_SPINCOUNT"]
    for chosen in ({"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}):
        environment = dict(chosen)
        wait_calmly(environment)
        assert environment == chosen


@pytest.mark.parametrize(("chosen", "threads"), [(None, 3), ("5", 5)])
def test_torch_runs_no_more_threads_than_granted_unless_told(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, threads: int
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu, "usable_cores", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    try:
        torch.set_num_threads(5)
        notes = cpu.bound_threads()
        assert torch.get_num_threads() == threads
        assert len(notes) == (chosen is None)
        assert cpu.bound_threads() == ()
    finally:
        torch.set_num_threads(before)
