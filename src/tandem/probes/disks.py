"""Disks for a profile: one reader, as many as read fastest, all at once, and in balanced shares."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

from tandem.cost.park_egger.nvme_balance import Shares, balance
from tandem.probes.disk_probe import DiskProbe
from tandem.probes.effort import Effort
from tandem.probes.interleave import interleave
from tandem.profiling.measurements import DiskMeasurements, Striping
from tandem.spec.errors import ConfigError


class Disks:
    """A file on each folder's disk, open until the block ends.

    Attributes:
        skipped: what was left out and why, where past the page cache cannot be read.

    Raises:
        ConfigError: a folder that is not there.
    """

    def __init__(self, folders: Sequence[Path], effort: Effort) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(
                    f"--disk {folder}: there is no such folder; make it, or name another on the "
                    "disk that is to be measured",
                    param="disk",
                )
        self._effort, self._open = effort, ExitStack()
        self._probes: dict[Path, DiskProbe] = {}
        skipped: list[str] = []
        with ExitStack() as stack:  # nothing stays open if one of them fails otherwise
            for folder in dict.fromkeys(folders):
                try:
                    probe = DiskProbe(folder, effort.disk_bytes, trials=1)
                except ConfigError as error:
                    skipped.append(f"disk {folder}: {error.message}")
                    continue
                stack.callback(probe.close)
                self._probes[folder] = probe
            self._open = stack.pop_all()
        self.skipped = tuple(skipped)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def folders(self) -> tuple[Path, ...]:
        """Those that are measured."""
        return tuple(self._probes)

    def measure(self) -> tuple[DiskMeasurements, ...]:
        """Each by itself, and all at once."""
        found = [self._rates(probe) for probe in self._probes.values()]
        together = self._together()
        return tuple(
            DiskMeasurements(str(folder), *rates, probe.describe(), beside)
            for (folder, probe), rates, beside in zip(
                self._probes.items(), found, together, strict=True
            )
        )

    def stripe(self, beside: Callable[[Callable[[], float]], float]) -> Striping | None:
        """Shares by the paper's iteration, each round read at once; None: fewer than two disks.

        Args:
            beside: calls a probe while the rest of the machine is busy, as it is when weights are
                read.
        """
        if len(self._probes) < 2:
            return None

        def times_s(shares: Shares) -> Sequence[float]:
            found: list[float] = []

            def read() -> float:
                found.extend(self._read(shares))
                return max(found)

            beside(read)
            return found

        shares = balance(len(self._probes), times_s)
        rounds = range(self._effort.rounds)
        last_s = median([max(times_s(shares)) for _ in rounds])
        return Striping(shares, self._effort.disk_bytes / last_s)

    def reading(self, shares: Shares) -> Callable[[], int]:
        """Reads all disks at once, and returns the bytes once all have ended."""

        def read() -> int:
            self._read(shares)
            return self._effort.disk_bytes

        return read

    def _read(self, shares: Shares) -> list[float]:
        """Seconds that each disk takes for its share of as much as one file holds."""
        with ThreadPoolExecutor(len(self._probes)) as readers:
            return list(readers.map(DiskProbe.seconds, self._probes.values(), shares))

    def _rates(self, probe: DiskProbe) -> tuple[float, float]:
        """Bytes/s of one reader, and of the best number of them."""
        ways = {"one": probe.measure_one_reader, "best": probe.measure}
        rates = interleave(ways, self._effort.rounds)
        return median(rates["one"]), median(rates["best"])

    def _together(self) -> list[float]:
        """Bytes/s of each while all are read."""
        probes = tuple(self._probes.values())
        if not probes:
            return []
        with ThreadPoolExecutor(len(probes)) as readers:
            rounds = range(self._effort.rounds)
            rates = [list(readers.map(DiskProbe.measure, probes)) for _ in rounds]
        return [median(each) for each in zip(*rates, strict=True)]
