"""Rates are looked up on CUDA where something is to be decided by them, and only there."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.profiles import KERNELS, MACHINE, accelerator_measurements, profile

from tandem.engine.building.target import Target, resolve_target
from tandem.engine.sizing import target_rates
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.target_rates import with_rates
from tandem.memory.peaks import HostMemory
from tandem.plan.weights import Home, WeightPlacement
from tandem.profiling.measurements import DiskMeasurements
from tandem.profiling.profile import Profile
from tandem.profiling.profile_file import profile_path, write_profile
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.config import EngineConfig
from tandem.spec.units import GIB

CARD = accelerator_measurements().name
HOST = HostMemory(GIB, GIB, 64 * GIB, 40 * GIB, 20 * GIB, 24 * GIB, 4 * GIB, None)
CUDA = Target(
    AcceleratorChoice("cuda"), torch.device("cuda", 0), Capacities(10 * GIB, 10 * GIB), HOST
)
CONFIG = EngineConfig("m")


def placed(home: Home) -> tuple[WeightPlacement, ...]:
    return (WeightPlacement(0, 3), WeightPlacement(4, 7, home))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a card, whose cache folder is the path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(target_rates, "this_machine", lambda environment: MACHINE)
    monkeypatch.setattr(target_rates, "code_digest", lambda: KERNELS)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: CARD)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * GIB, 12 * GIB))
    return tmp_path


def store(cache: Path, found: Profile) -> None:
    write_profile(found, profile_path(cache / "tandem", MACHINE))


def test_a_stored_profile_is_used(machine: Path) -> None:
    store(machine, profile(accelerator=True))
    target, notes = with_rates(CUDA, CONFIG, placed("streamed"), machine)
    assert target.hardware is not None
    assert target.hardware.accelerator.memory_bandwidth_bytes_per_s == 500e9
    assert target.hardware.host.memory_bytes == 24 * GIB, "the control group's"
    assert target.hardware.host.disk_bytes_per_s is None, "/data is not here"
    assert [note[:42] for note in notes] == ["times are predicted from the profile of 20"]


def test_the_disk_that_the_model_is_on_is_known_if_it_was_measured(machine: Path) -> None:
    disk = DiskMeasurements(str(machine), 1e9, 3e9, "8 threads", 2.5e9)
    store(machine, replace(profile(accelerator=True), disks=(disk,)))
    model = machine / "model"
    model.mkdir()
    target, _ = with_rates(CUDA, CONFIG, placed("streamed"), model)
    assert target.hardware is not None
    assert target.hardware.host.disk_bytes_per_s == 3e9


def test_disks_with_copies_give_what_they_gave_together(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [machine / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    devices = {str(folder): number for number, folder in enumerate(folders)}
    disks = tuple(DiskMeasurements(str(f), 1e9, 3e9, "8 threads", 2.5e9) for f in folders[:2])
    monkeypatch.setattr(
        target_rates.Path,
        "stat",
        lambda path, **_: SimpleNamespace(st_dev=devices.get(str(path))),
    )
    measured = replace(profile(accelerator=True), disks=disks)
    for others, rate in (((), 3e9), (folders[1:2], 5e9), (folders[1:], 5e9), (folders[2:], 3e9)):
        config = replace(CONFIG, disk_copies=os.pathsep.join(map(str, others)) or None)
        monkeypatch.setattr(target_rates, "_stored_profile", lambda: measured)
        target, _ = with_rates(CUDA, config, placed("streamed"), folders[0])
        assert target.hardware is not None
        assert target.hardware.host.disk_bytes_per_s == rate


@pytest.mark.parametrize("card", ["NVIDIA GeForce RTX 4090", "Test card"])
def test_a_refused_profile_is_not_used_and_the_note_says_why(
    machine: Path, card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: card)
    store(machine, replace(profile(accelerator=True), kernels="other"))
    target, (note,) = with_rates(CUDA, CONFIG, placed("streamed"), machine)
    assert (target.hardware is None) == (card == "Test card")
    assert (
        "measured with other kernels or probes than are installed now; run `tandem profile`" in note
    )


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (CONFIG, (WeightPlacement(0, 7),)),
        (replace(CONFIG, host_layers="stream"), placed("streamed")),
        (replace(CONFIG, host_layers="cpu"), placed("cpu")),
        (replace(CONFIG, placement="p.json"), placed("streamed")),
        (replace(CONFIG, plan="p.json"), placed("host")),
    ],
    ids=["all fit", "stream", "cpu", "file", "plan"],
)
def test_where_nothing_is_to_be_decided_nothing_is_looked_up(
    config: EngineConfig, weights: tuple[WeightPlacement, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_rates, "this_machine", lambda environment: pytest.fail("asked"))
    assert with_rates(CUDA, config, weights, Path("/")) == (CUDA, ())


def test_layers_that_a_file_leaves_to_predictions_need_rates(machine: Path) -> None:
    store(machine, profile(accelerator=True))
    config = replace(CONFIG, placement="p.json")
    assert with_rates(CUDA, config, placed("host"), machine)[1]


@pytest.mark.parametrize(
    "changes", [{"strategy": "neo"}, {"strategy": "apex"}, {"max_host_seqs": 2}]
)
def test_strategies_that_choose_by_predicted_time_need_rates(
    changes: dict[str, Any], machine: Path
) -> None:
    store(machine, profile(accelerator=True))
    found, notes = with_rates(CUDA, replace(CONFIG, **changes), placed("resident"), Path("/"))
    assert found.hardware is not None
    assert notes


def test_an_emulated_accelerator_keeps_its_description() -> None:
    emulated = resolve_target(EngineConfig("m", accelerator="emulated:t4"), HOST)
    assert with_rates(emulated, CONFIG, placed("streamed"), Path("/")) == (emulated, ())
