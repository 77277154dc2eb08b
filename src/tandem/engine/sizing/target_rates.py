"""Asks this machine for the rates by which layers that do not fit a CUDA device are placed."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tandem.devices.cuda.device import device_name, total_bytes
from tandem.devices.host_threads import usable_cores
from tandem.devices.this_machine import cache_folder, code_digest, this_machine
from tandem.engine.building.target import Target
from tandem.engine.sizing.cuda_rates import Card, HostSize, cuda_rates
from tandem.engine.sizing.disk_folders import copy_folders
from tandem.engine.sizing.plan_checks import needs_prices
from tandem.plan.weights import LENT, WeightPlacement, homes_by_layer
from tandem.profiling.profile import Profile
from tandem.profiling.profile_file import profile_path, read_profile
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError


def with_rates(
    target: Target, config: EngineConfig, weights: tuple[WeightPlacement, ...], directory: Path
) -> tuple[Target, tuple[str, ...]]:
    """`target` with the rates of its CUDA device, and a note of where they are from, if anything is
    to be decided by them.

    Args:
        weights: as placed without rates.
        directory: of the model.
    """
    asked = _is_open(config, weights) or needs_prices(config, target.capacities)
    if target.choice.kind != "cuda" or not asked:
        return target, ()
    profile = _stored_profile()
    card = Card(device_name(target.device), total_bytes(target.device))
    disk = None
    if not isinstance(profile, str):
        disk = _disk_rate(profile, (directory, *copy_folders(config)))
    host = HostSize(target.host.capacity_bytes, usable_cores(), disk)
    rates = cuda_rates(card, host, profile)
    return replace(target, hardware=rates.hardware), (rates.note,)


def _is_open(config: EngineConfig, weights: tuple[WeightPlacement, ...]) -> bool:
    """Whether it is left to predictions what becomes of layers that are not resident."""
    homes = set(homes_by_layer(weights).values())
    if config.plan is not None:
        return False
    if config.placement is not None:
        return bool(homes & set(LENT))
    return config.host_layers in ("auto", "mlp") and homes != {"resident"}


def _stored_profile() -> Profile | str:
    """This machine's, or why there is none that can be used."""
    machine = this_machine(os.environ)
    path = profile_path(cache_folder(os.environ), machine)
    try:
        return read_profile(path, machine, code_digest())
    except ConfigError as error:
        return error.message


def _disk_rate(profile: Profile, folders: Sequence[Path]) -> float | None:
    """Of the disks that a model and its copies are on, as far as they were measured; of several,
    what each gave while all that were measured were read.
    """
    try:
        used = {folder.stat().st_dev for folder in folders}
        measured = {Path(disk.folder).stat().st_dev: disk for disk in profile.disks}
    except OSError:  # a folder is gone: what it was on cannot be told
        return None
    found = [disk for device, disk in measured.items() if device in used]
    if len(found) < 2:
        return found[0].bytes_per_s if found else None
    return sum(disk.together_bytes_per_s for disk in found)
