"""Lists of values, each of which is a run of its own."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tandem.planner.host_alone import with_host
from tandem.planner.sensitivity import with_cores
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.units import is_count

RATES, GENERATE, HOST_CORES = "--rates", "--generate", "--host-cores"
_MOST_CORES = 1024
"""Of a host: more than any has."""
_COUNTS = re.compile(r"\d+(,\d+)+")


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values of one option, in the order given; whole numbers but for rates."""

    flag: str
    values: tuple[float, ...]


def read_sweep(
    rate: float | None, rates: str | None, generate: str, host_cores: str | None
) -> Sweep | None:
    """The option that holds a list; None if none does.

    Raises:
        ConfigError: more than one does, a value is none, or --rate says the same thing.
    """
    sweeps: list[Sweep] = []
    if rates is not None:
        sweeps.append(Sweep(RATES, _numbers(RATES, rates, _rate)))
    if _COUNTS.fullmatch(generate):
        sweeps.append(Sweep(GENERATE, _numbers(GENERATE, generate, _count)))
    if host_cores is not None:
        sweeps.append(Sweep(HOST_CORES, _numbers(HOST_CORES, host_cores, _cores)))
    if len(sweeps) > 1:
        flags = " and ".join(sweep.flag for sweep in sweeps)
        raise ConfigError(f"{flags} are both lists; vary one thing at a time", param="rates")
    if rates is not None and rate is not None:
        raise ConfigError("--rate and --rates both say how often requests come; give one of them")
    return sweeps[0] if sweeps else None


def hardware_with_cores(
    hardware: HardwareSpec, cores: int, *, host_only: bool = False
) -> HardwareSpec:
    """The same machine with so many cores in its host.

    Args:
        host_only: it is `host_alone`.

    Raises:
        ConfigError: it is not known how many its figures are for.
    """
    known = hardware.host.cores
    if known is None:
        raise ConfigError(
            f"{hardware.name} does not say how many cores its host has; choose another --host, or "
            "add them to its file",
            param="host_cores",
        )
    host = with_cores(hardware.host, known, cores)
    return with_host(hardware, host) if host_only else replace(hardware, host=host)


def _numbers(flag: str, text: str, read: Callable[[str], float | None]) -> tuple[float, ...]:
    values: list[float] = []
    for part in text.split(","):
        value = read(part.strip())
        if value is None:
            raise ConfigError(
                f"{flag} '{text}': '{part}' is not a number above 0; write them as 4,8,16",
                param=flag.strip("-").replace("-", "_"),
            )
        values.append(value)
    return tuple(values)


def _rate(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _cores(text: str) -> int | None:
    count = _count(text)
    if count is not None and count > _MOST_CORES:
        raise ConfigError(
            f"--host-cores {count}: no host has more than {_MOST_CORES} cores; name fewer",
            param="host_cores",
        )
    return count


def _count(text: str) -> int | None:
    if not is_count(text):
        return None
    return int(text) if 0 < int(text) <= 10_000_000 else None
