"""Which device, and how much of which memory: defaults, and what cannot be had is refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tandem.engine.building import target as target_module
from tandem.engine.building.build import build_engine_core
from tandem.engine.building.target import Target, resolve_target
from tandem.memory.peaks import HostMemory
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import PAIRS, known_hardware
from tandem.spec.units import GIB

HOST = HostMemory(
    rss_bytes=GIB,
    peak_rss_bytes=GIB,
    total_bytes=64 * GIB,
    free_bytes=40 * GIB,
    available_bytes=20 * GIB,
    cgroup_limit_bytes=24 * GIB,
    cgroup_current_bytes=4 * GIB,
    cgroup_peak_bytes=None,
)


def resolve(accelerator: str, host: HostMemory = HOST, **flags: str) -> Target:
    return resolve_target(replace(EngineConfig("m", accelerator=accelerator), **flags), host)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA device with 10 GiB free."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * GIB, 12 * GIB))


def test_by_default_all_but_a_margin_may_be_used_and_it_is_said(gpu: None) -> None:
    found = resolve("auto", gpu_margin="1GiB")
    assert found.choice.kind == "cuda"
    assert found.capacities.device_bytes == 9 * GIB
    assert found.capacities.host_bytes == found.capacities.room_bytes == 19 * GIB
    assert found.capacities.elastic
    assert found.notes == (
        "host memory: up to 19.0 GiB of the 20.0 GiB free, and at most about 8.0 GiB of it for KV; "
        "--cpu-memory overrides",
    )


def test_kv_is_not_said_to_take_more_of_the_host_s_memory_than_there_is(gpu: None) -> None:
    little = replace(HOST, available_bytes=7 * GIB)
    (note,) = resolve("auto", little, gpu_margin="1GiB").notes
    up_to = note.split("up to ")[1].split(" of the")[0]
    assert f"at most about {up_to} of it for KV" in note


def test_batches_of_copies_are_for_a_gpu(gpu: None) -> None:
    assert resolve("cuda", link_copies="batched").choice.kind == "cuda"
    for accelerator in ("none", "emulated"):
        with pytest.raises(ConfigError, match="--link-copies batched has no meaning without a GPU"):
            resolve(accelerator, link_copies="batched")
        with pytest.raises(ConfigError, match="--attention-backend torch has no meaning without a"):
            resolve(accelerator, attention_backend="torch")
        with pytest.raises(ConfigError, match="--link-waits stream has no meaning without a GPU"):
            resolve(accelerator, link_waits="stream")
    with pytest.raises(ConfigError, match="unknown --link-copies 'engines'"):
        EngineConfig("m", link_copies="engines")  # pyright: ignore[reportArgumentType]


def test_by_default_a_twentieth_of_what_is_free_stays_free(gpu: None) -> None:
    assert resolve("cuda").capacities.device_bytes == 10 * GIB - 10 * GIB // 20
    with pytest.raises(ConfigError, match=r"--gpu-margin 11.0 GiB is more than the 10.0 GiB") as e:
        resolve("cuda", gpu_margin="11GiB")
    assert e.value.param == "gpu_margin"


@pytest.mark.parametrize(
    ("accelerator", "gpu_memory"), [("none", "auto"), ("emulated", "auto"), ("cuda", "2GiB")]
)
def test_a_margin_that_nothing_is_taken_from_is_said_to_have_no_effect(
    accelerator: str, gpu_memory: str, gpu: None
) -> None:
    found = resolve(accelerator, gpu_memory=gpu_memory, gpu_margin="1GiB")
    assert "--gpu-margin 1GiB has no effect: it is for --gpu-memory auto on CUDA" in found.notes
    assert len(resolve(accelerator, gpu_memory=gpu_memory).notes) == len(found.notes) - 1


@pytest.mark.parametrize("accelerator", ["cuda", "emulated"])
def test_a_margin_beyond_the_memory_is_refused_also_without_effect(
    accelerator: str, gpu: None
) -> None:
    with pytest.raises(ConfigError, match=r"--gpu-margin 1.0 TiB is more than the") as error:
        resolve(accelerator, gpu_memory="2GiB", gpu_margin="1TiB")
    assert error.value.param == "gpu_margin"


def test_what_a_user_could_have_used_is_known(gpu: None) -> None:
    alone, cuda = resolve("none").capacities, resolve("cuda").capacities
    assert (alone.device_limit_bytes, alone.host_limit_bytes) == (20 * GIB, None)
    assert (cuda.device_limit_bytes, cuda.host_limit_bytes) == (10 * GIB, 20 * GIB)


def test_without_an_accelerator_a_margin_stays_free_too() -> None:
    found = resolve("none")
    assert found.capacities.device_bytes == 19 * GIB
    assert found.capacities.host_bytes == 0
    assert "up to 19.0 GiB of the 20.0 GiB free" in found.notes[0]


def test_sizes_that_are_there_are_taken_as_given(gpu: None) -> None:
    found = resolve("cuda", gpu_memory="10GiB", cpu_memory="20GiB")
    assert (found.capacities.device_bytes, found.capacities.host_bytes) == (10 * GIB, 20 * GIB)
    assert found.capacities.room_bytes == 19 * GIB, "with what comes on top, that is refused later"
    assert not found.capacities.elastic
    assert found.notes == ()


@pytest.mark.parametrize("accelerator", ["none", "cuda", "emulated"])
def test_more_host_memory_than_is_available_is_refused(accelerator: str, gpu: None) -> None:
    with pytest.raises(ConfigError, match=r"--cpu-memory 10.0 TiB is more than the 20.0 GiB") as e:
        resolve(accelerator, cpu_memory="10TiB")
    assert e.value.param == "cpu_memory"
    assert "control group's limit: 24.0 GiB" in e.value.message


def test_more_device_memory_than_is_free_is_refused(gpu: None) -> None:
    with pytest.raises(ConfigError, match=r"--gpu-memory 11.0 GiB is more than the 10.0 GiB") as e:
        resolve("cuda", gpu_memory="11GiB")
    assert e.value.param == "gpu_memory"
    with pytest.raises(ConfigError, match=r"--gpu-memory 21.0 GiB is more than the 20.0 GiB of"):
        resolve("emulated", gpu_memory="21GiB")


@pytest.mark.parametrize(
    ("accelerator", "device_bytes"),
    [("emulated", 6 * 10**9), ("emulated:t4", 16 * 10**9), ("emulated:seed=1,spec=t4", 16 * 10**9)],
)
def test_an_emulated_accelerator_has_its_description_s_memory(
    accelerator: str, device_bytes: int
) -> None:
    found = resolve(accelerator)
    assert found.capacities.device_bytes == device_bytes
    assert found.capacities.host_bytes == 19 * GIB - device_bytes
    assert resolve(accelerator, gpu_memory="1GiB").capacities.device_bytes == GIB


def test_an_emulated_accelerator_may_be_described_by_a_file(tmp_path: Path) -> None:
    text = (PAIRS / "a10g-scaled.toml").read_text("utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("6_000_000_000", "12_345_678"), "utf-8")
    assert resolve(f"emulated:{path}").capacities.device_bytes == 12_345_678


@pytest.mark.parametrize("accelerator", ["emulated:fast", "emulated:exact,spec=h900"])
def test_an_unknown_description_is_refused_with_the_known_ones(accelerator: str) -> None:
    with pytest.raises(ConfigError, match="no hardware description") as error:
        resolve(accelerator)
    assert all(name in error.value.message for name in known_hardware())


def test_an_emulated_accelerator_that_the_host_cannot_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poor = HostMemory(
        rss_bytes=0,
        peak_rss_bytes=0,
        total_bytes=GIB,
        free_bytes=GIB,
        available_bytes=400 << 20,
        cgroup_limit_bytes=None,
        cgroup_current_bytes=None,
        cgroup_peak_bytes=None,
    )
    monkeypatch.setattr(target_module, "read_host_memory", lambda: poor)
    with pytest.raises(ConfigError, match=r"emulated accelerator .*, 380.0 MiB available") as error:
        build_engine_core(EngineConfig("demo", accelerator="emulated"))
    (size,) = re.findall(r"--gpu-memory (\d+)MiB at most", error.value.message)
    build_engine_core(EngineConfig("demo", accelerator="emulated", gpu_memory=f"{size}MiB")).close()
    more = f"{int(size) + 1}MiB"
    with pytest.raises(ConfigError, match="emulated accelerator"):
        build_engine_core(EngineConfig("demo", accelerator="emulated", gpu_memory=more))


@pytest.mark.parametrize("accelerator", ["none", "emulated"])
def test_a_size_that_leaves_no_margin_is_refused_and_the_nearest_is_taken(
    accelerator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of a control group's memory, where libraries and buffers come on top."""
    limit = 300 << 20
    group = replace(HOST, available_bytes=limit, cgroup_limit_bytes=limit + GIB)
    monkeypatch.setattr(target_module, "read_host_memory", lambda: group)
    config = EngineConfig("demo", accelerator=accelerator, cpu_memory="300MiB")
    if accelerator == "emulated":
        config = replace(config, gpu_memory="64MiB")
    with pytest.raises(ConfigError, match=r"needed, 285.0 MiB available less a margin") as error:
        build_engine_core(config)
    (size,) = re.findall(r"--cpu-memory (\d+)MiB at most", error.value.message)
    core = build_engine_core(replace(config, cpu_memory=f"{size}MiB"))
    taken = sum(entry.predicted_bytes for entry in core.stats().memory if entry.label != "process")
    core.close()
    assert limit * 19 // 20 - (2 << 20) < taken <= limit * 19 // 20
    build_engine_core(replace(config, cpu_memory="auto")).close()
