"""Folders on disks that layers are read from, as options name them."""

import os
from pathlib import Path

from tandem.devices.this_machine import cache_folder
from tandem.plan.disk_slots import MOST_DISKS
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError


def spool_folders(config: EngineConfig) -> tuple[Path, ...]:
    """Where converted layers go, divided among them.

    Raises:
        ConfigError: one is named twice, or there are too many.
    """
    folders = _folders(config.spool_dir, "spool_dir")
    if len(folders) > MOST_DISKS:
        raise ConfigError(
            f"--spool-dir names {len(folders)} folders, and layers are read from at most "
            f"{MOST_DISKS} disks; leave some out",
            param="spool_dir",
        )
    return folders or (cache_folder(os.environ),)


def copy_folders(config: EngineConfig) -> tuple[Path, ...]:
    """With copies of the checkpoint, on other disks.

    Raises:
        ConfigError: one is named twice, or there are too many.
    """
    folders = _folders(config.disk_copies, "disk_copies")
    if len(folders) >= MOST_DISKS:
        raise ConfigError(
            f"--disk-copies names {len(folders)} folders, and layers are read from at most "
            f"{MOST_DISKS} disks, the model's own included; leave some out",
            param="disk_copies",
        )
    return folders


def _folders(given: str | None, param: str) -> tuple[Path, ...]:
    """Of an option that names several, as in `PATH`."""
    folders = tuple(Path(name) for name in (given or "").split(os.pathsep) if name)
    if len(set(folders)) < len(folders):
        flag = f"--{param.replace('_', '-')}"
        raise ConfigError(f"{flag} {given} names a folder twice; name each once", param=param)
    return folders
