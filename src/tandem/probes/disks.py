"""Disks for a profile: one reader, as many as read fastest, and all disks at once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tandem.probes.disk_probe import DiskProbe
from tandem.probes.effort import Effort
from tandem.probes.interleave import interleave
from tandem.profiling.measurements import DiskMeasurements
from tandem.spec.errors import ConfigError


def measure_disks(
    folders: tuple[Path, ...], effort: Effort
) -> tuple[tuple[DiskMeasurements, ...], tuple[str, ...]]:
    """Each folder's disk; and what was left out and why, where past the page cache cannot be read.

    Raises:
        ConfigError: a folder that is not there.
    """
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}; name one with --disk", param="disk")
    skipped: list[str] = []
    with ExitStack() as stack:
        probes: dict[Path, DiskProbe] = {}
        for folder in folders:
            try:
                probes[folder] = DiskProbe(folder, effort.disk_bytes, trials=1)
            except ConfigError as error:
                skipped.append(f"disk {folder}: {error.message}")
                continue
            stack.callback(probes[folder].close)
        found = tuple(_measured(probe, effort) for probe in probes.values())
        together = _together(tuple(probes.values()), effort)
    disks = tuple(
        DiskMeasurements(str(folder), *rates, probes[folder].describe(), beside)
        for folder, rates, beside in zip(probes, found, together, strict=True)
    )
    return disks, tuple(skipped)


def _measured(probe: DiskProbe, effort: Effort) -> tuple[float, float]:
    """Bytes/s of one reader, and of the best number of them."""
    ways = {"one": probe.measure_one_reader, "best": probe.measure}
    rates = interleave(ways, effort.rounds)
    return median(rates["one"]), median(rates["best"])


def _together(probes: tuple[DiskProbe, ...], effort: Effort) -> list[float]:
    """Bytes/s of each while all are read."""
    if not probes:
        return []
    with ThreadPoolExecutor(len(probes)) as readers:
        rounds = [list(readers.map(DiskProbe.measure, probes)) for _ in range(effort.rounds)]
    return [median(rates) for rates in zip(*rounds, strict=True)]
