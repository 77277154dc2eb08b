"""Hardware descriptions: TOML files, packaged by name or the user's own by path.

Names may be in any case. Accelerators and hosts are described apart and paired on demand; a pair in
one file is either packaged because it exists only as such (a scaled one) or the user's own.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tandem.spec.errors import ConfigError
from tandem.spec.hardware import AcceleratorFacts, HardwareSpec, HostFacts, LinkFacts
from tandem.spec.hardware_reader import HardwareReader, Table

_ASSETS = Path(__file__).resolve().parents[1] / "assets"
ACCELERATORS, HOSTS, PAIRS = _ASSETS / "accelerators", _ASSETS / "hosts", _ASSETS / "pairs"

# What a file may turn out to describe, and what to do then.
_FORMER_PAIRS = {"small": "a10g-scaled"}
"""Names by which scripts and records may still call packaged pairs."""
_NO_PAIRS = {"a host": "name an accelerator, and this file as its host"}
_NO_ACCELERATORS = {**_NO_PAIRS, "an accelerator with its host": "name it alone, without a host"}
_NO_HOSTS = {
    "an accelerator": "name it as the accelerator",
    "an accelerator with its host": "name it as the accelerator, without a host",
}


@dataclass(frozen=True, slots=True)
class AcceleratorDescription:
    """An accelerator with the link it has in a slot of its own generation.

    Attributes:
        host: name of the host that it usually has.
        driver_names: what its driver calls it.
    """

    name: str
    host: str
    accelerator: AcceleratorFacts
    link: LinkFacts
    driver_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostDescription:
    """A host, and what a slot of it lets through in each direction.

    Attributes:
        note: what is to be said of its numbers wherever they are used; empty: nothing.
    """

    name: str
    slot_bytes_per_s: float
    host: HostFacts
    note: str = ""


def known_accelerators() -> tuple[str, ...]:
    """Names of the packaged accelerators."""
    return _names(ACCELERATORS)


def known_hosts() -> tuple[str, ...]:
    """Names of the packaged hosts."""
    return _names(HOSTS)


def known_hardware() -> tuple[str, ...]:
    """Names that `load_hardware` takes: accelerators in their usual host, and packaged pairs."""
    return tuple(sorted(_names(ACCELERATORS) + _names(PAIRS)))


def load_hardware(name: str) -> HardwareSpec:
    """A packaged pair, an accelerator in its usual host, or the file that `name` is the path of:
    a pair, or an accelerator that names its usual host.

    Raises:
        ConfigError: no such name or file, or a field is missing, unknown or out of range.
    """
    if packaged_file(ACCELERATORS, name):
        return pair_hardware(name)
    path = packaged_file(PAIRS, name) or Path(name)
    table = _read(path, "accelerator")
    if table is None:
        known = ", ".join(known_hardware())
        raise ConfigError(
            f"no hardware description '{name}'; use one of {known}, or the path of a TOML file",
            param="accelerator",
        )
    if isinstance(table.get("host"), str):
        return pair_hardware(name)
    _refuse_kinds(table, path, _NO_PAIRS, "accelerator")
    return parse_hardware(table, str(path))


def pair_hardware(accelerator: str, host: str | None = None) -> HardwareSpec:
    """An accelerator in a host, each by name or path; None is its usual host.

    The link is as fast as the slower of the accelerator's and the host's slot.

    Raises:
        ConfigError: no such description (names the nearest), or a wrong one.
    """
    card = load_accelerator(accelerator)
    machine = load_host(card.host if host is None else host)
    link = replace(
        card.link,
        h2d_bytes_per_s=min(card.link.h2d_bytes_per_s, machine.slot_bytes_per_s),
        d2h_bytes_per_s=min(card.link.d2h_bytes_per_s, machine.slot_bytes_per_s),
    )
    return HardwareSpec(f"{card.name}, {machine.name}", card.accelerator, link, machine.host)


def load_accelerator(name: str) -> AcceleratorDescription:
    """A packaged accelerator, or one in a file.

    Raises:
        ConfigError: no such description (names the nearest), or a wrong one.
    """
    path = packaged_file(ACCELERATORS, name) or Path(name)
    table = _read(path, "accelerator")
    if table is None:
        raise _unknown("accelerator", name, known_accelerators())
    _refuse_kinds(table, path, _NO_ACCELERATORS, "accelerator")
    reader = HardwareReader(str(path))
    reader.check_names(table, "", ("name", "host", "accelerator", "link"), ("driver_names",))
    return AcceleratorDescription(
        reader.text(table, "name"),
        reader.text(table, "host"),
        reader.facts(table, "accelerator", AcceleratorFacts),
        reader.facts(table, "link", LinkFacts),
        reader.texts(table, "driver_names") if "driver_names" in table else (),
    )


def find_accelerator(driver_name: str) -> AcceleratorDescription | None:
    """The packaged accelerator that its driver calls so: the whole name, since what differs in a
    word (`Laptop`, `PCIe`, `MIG 1g.10gb`) is another one.
    """
    for name in known_accelerators():
        card = load_accelerator(name)
        if driver_name.strip() in card.driver_names:
            return card
    return None


def load_host(name: str) -> HostDescription:
    """A packaged host, or one in a file.

    Raises:
        ConfigError: no such description (names the nearest), or a wrong one.
    """
    path = packaged_file(HOSTS, name) or Path(name)
    table = _read(path, "host")
    if table is None:
        raise _unknown("host", name, known_hosts())
    _refuse_kinds(table, path, _NO_HOSTS, "host")
    reader = HardwareReader(str(path), "host")
    reader.check_names(table, "", ("name", "slot_bytes_per_s", "host"), ("note",))
    return HostDescription(
        reader.text(table, "name"),
        reader.number(table, "slot_bytes_per_s"),
        reader.facts(table, "host", HostFacts),
        reader.text(table, "note") if "note" in table else "",
    )


def parse_hardware(table: Table, source: str) -> HardwareSpec:
    """A pair from a parsed file.

    Raises:
        ConfigError: a field is missing, unknown or out of range; names it and `source`.
    """
    reader = HardwareReader(source)
    reader.check_names(table, "", ("name", "accelerator", "link", "host"), ("scaled_from",))
    return HardwareSpec(
        name=reader.text(table, "name"),
        accelerator=reader.facts(table, "accelerator", AcceleratorFacts),
        link=reader.facts(table, "link", LinkFacts),
        host=reader.facts(table, "host", HostFacts),
        scaled_from=reader.text(table, "scaled_from") if "scaled_from" in table else None,
    )


def hardware_table(hardware: HardwareSpec) -> dict[str, Any]:
    """Of plain values, what `parse_hardware` reads."""
    facts = asdict(hardware)
    rates = hardware.accelerator.flops_per_s
    facts["accelerator"]["flops_per_s"] = {str(kind): rate for kind, rate in rates.items()}
    for section in ("accelerator", "host"):
        known = {name: value for name, value in facts[section].items() if value is not None}
        facts[section] = known
    return {name: value for name, value in facts.items() if value is not None}


def packaged_file(folder: Path, name: str) -> Path | None:
    """The file in one of the package's folders that `name` means; None: no name of one."""
    from tandem.spec.names import known_name

    known = known_name(name, _names(folder))
    if known is None and folder == PAIRS:
        known = _FORMER_PAIRS.get(name)
    return None if known is None else folder / f"{known}.toml"


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name.removesuffix(".toml") for path in folder.glob("*.toml")))


def _read(path: Path, param: str) -> Table | None:
    """A parsed file; None if there is none that can be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError):
        return None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, or numbers of thousands of digits
        raise ConfigError(f"{path} is not TOML ({error}); mend it", param=param) from None


def _refuse_kinds(table: Table, path: Path, remedies: Mapping[str, str], param: str) -> None:
    """Say what a file describes if that is not what it was named for."""
    kind = ""
    if "slot_bytes_per_s" in table and "accelerator" not in table:
        kind = "a host"
    elif "accelerator" in table and "slot_bytes_per_s" not in table:
        paired = isinstance(table.get("host"), dict)
        kind = "an accelerator with its host" if paired else "an accelerator"
    if kind in remedies:
        raise ConfigError(f"{path} describes {kind}: {remedies[kind]}", param=param)


def _unknown(kind: str, name: str, known: tuple[str, ...]) -> ConfigError:
    from tandem.spec.names import folded

    near = difflib.get_close_matches(folded(name).replace(" ", ""), known, n=3, cutoff=0.4)
    nearest = f"nearest: {', '.join(near)}; " if near else ""
    return ConfigError(
        f"unknown {kind} '{name}'; {nearest}known: {', '.join(known)}, or the path of a TOML file",
        param=kind,
    )
