"""The machine that a plan is for: described, measured, or partly each."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.cli.planning_options import MachineOptions
    from tandem.profiling.measurements import AcceleratorMeasurements
    from tandem.profiling.profile import Machine, Profile
    from tandem.spec.hardware import HardwareSpec, HostFacts, LinkFacts
    from tandem.spec.hardware_file import AcceleratorDescription, HostDescription

MEASURED, NONE = "measured", "none"
_GIGA = 1e9
_ASSUMED = "Predicted from data sheets and assumed efficiencies, not measured"


@dataclass(frozen=True, slots=True)
class PlanHardware:
    """What to plan for.

    Attributes:
        profile: whose measurements of the host are used; None: it is not measured.
        basis: which numbers are measured and which assumed, one line each.
        card: what was measured of the accelerator; None: it is not.
    """

    spec: "HardwareSpec"
    host_only: bool
    profile: "Profile | None"
    basis: tuple[str, ...]
    card: "AcceleratorMeasurements | None" = None

    def saying(self, *lines: str) -> "PlanHardware":
        """With other lines about what a plan rests on."""
        return replace(self, basis=(*self.basis, *lines))


def asked_hardware(machine: "MachineOptions") -> PlanHardware:
    """What the options of a command say.

    Raises:
        ConfigError: says what is wrong with which.
    """
    named = plan_hardware(machine.accelerator, machine.host, machine.profile)
    return with_disk(named, machine.disk)


def plan_hardware(
    accelerator: str | None, host: str | None, profile_file: Path | None
) -> PlanHardware:
    """Resolve `--accelerator` and `--host`, either of which may be `measured`; without the former
    it is this machine, if it was measured.

    Raises:
        ConfigError: no name or an unknown one, or a profile that is needed is not there or refused.
    """
    host = None if host is None else keyword(host)
    if accelerator is None:
        return _unnamed(host, profile_file)
    accelerator = keyword(accelerator)
    if accelerator == MEASURED and host is None:
        host = MEASURED
    if MEASURED not in (accelerator, host):
        if profile_file is not None:
            raise ConfigError(
                "--profile says where measurements are, but nothing is to be measured; use --host "
                "measured",
                param="profile",
            )
        return _described(accelerator, host)
    profile = _profile(profile_file, of_card=accelerator == MEASURED)
    if accelerator == NONE:
        return _alone(profile)
    if accelerator == MEASURED:
        return _measured_card(profile, host or MEASURED)
    return _measured_host(profile, accelerator)


def keyword(name: str) -> str:
    """`measured` or `none` where a name means one of them, in any case; others as they are."""
    from tandem.spec.names import known_name

    return known_name(name, (MEASURED, NONE)) or name


def _unnamed(host: str | None, profile_file: Path | None) -> PlanHardware:
    """This machine as it was measured: with its accelerator, or alone where it has none.

    Raises:
        ConfigError: it was not measured, its profile is refused, or has no accelerator for `host`.
    """
    from tandem.spec.hardware_file import known_accelerators

    path, machine = _stored(profile_file)
    if profile_file is None and not path.is_file():
        raise ConfigError(
            "no accelerator is named, and this machine was not measured: run `tandem profile`, "
            f"whose figures are used then, or give --accelerator '{NONE}' (the host alone), a TOML "
            f"file, or one of: {', '.join(known_accelerators())}",
            param="accelerator",
        )
    try:
        profile = _read(path, machine, named=profile_file is not None)
    except ConfigError as error:
        raise ConfigError(
            f"no accelerator is named, and {error.message}, or name one with --accelerator",
            param="accelerator",
        ) from None
    if profile.accelerator is None and host not in (None, MEASURED):
        raise ConfigError(
            f"no accelerator is named, and this machine's profile has none for --host {host}; give "
            f"--accelerator '{NONE}' for that host alone, a TOML file, or one of: "
            f"{', '.join(known_accelerators())}",
            param="accelerator",
        )
    alone = profile.accelerator is None
    found = _alone(profile) if alone else _measured_card(profile, host or MEASURED)
    what = "this machine's host alone, its profile has no accelerator" if alone else "this machine"
    return found.saying(f"no --accelerator is named: {what}")


def with_disk(hardware: PlanHardware, disk: str | None) -> PlanHardware:
    """With what `--disk` says in place of the host's own disk; None: nothing.

    Raises:
        ConfigError: neither a rate nor `none`.
    """
    from tandem.spec.units import parse_rate_bytes_per_s

    if disk is None:
        return hardware
    rate = None if keyword(disk) == NONE else parse_rate_bytes_per_s(disk, param="disk")
    host = replace(hardware.spec.host, disk_bytes_per_s=rate)
    return replace(hardware, spec=replace(hardware.spec, host=host))


def _described(accelerator: str, host: str | None) -> PlanHardware:
    from tandem.planner.host_alone import host_alone
    from tandem.spec.hardware_file import (
        ACCELERATORS,
        PAIRS,
        load_accelerator,
        load_hardware,
        load_host,
        packaged_file,
        pair_hardware,
    )

    if accelerator == NONE:
        if host is None:
            raise ConfigError(
                "a plan without an accelerator needs its host: use --host measured, after `tandem "
                "profile`, or a name",
                param="host",
            )
        found = load_host(host)
        alone = PlanHardware(host_alone(found.name, found.host), True, None, (_ASSUMED,))
        return alone.saying(*_note(found))
    by_itself = host is None and not packaged_file(ACCELERATORS, accelerator)
    if by_itself and (packaged_file(PAIRS, accelerator) or Path(accelerator).is_file()):
        return PlanHardware(load_hardware(accelerator), False, None, (_ASSUMED,))
    spec = pair_hardware(accelerator, host)
    of_host = load_host(host or load_accelerator(accelerator).host)
    return PlanHardware(spec, False, None, (_ASSUMED, *_note(of_host)))


def _note(host: "HostDescription") -> tuple[str, ...]:
    return (f"{host.name}: {host.note}",) if host.note else ()


def _stored(named: Path | None) -> "tuple[Path, Machine]":
    """Where the profile is to be read from, and this machine, of which it must be."""
    from tandem.devices.this_machine import cache_folder, this_machine
    from tandem.profiling.profile_file import profile_path

    machine = this_machine(os.environ)
    return named or profile_path(cache_folder(os.environ), machine), machine


def _haste(profile: "Profile") -> str:
    """Whether times are of fewer repeats than usual."""
    if not profile.hurried:
        return ""
    return f"; {len(profile.hurried)} of its probes in one round as the time ran short"


def _read(path: Path, machine: "Machine", *, named: bool) -> "Profile":
    from tandem.devices.this_machine import code_digest
    from tandem.profiling.profile_file import read_profile

    return read_profile(path, machine, code_digest(), named=named)


def _profile(named: Path | None, *, of_card: bool) -> "Profile":
    path, machine = _stored(named)
    try:
        return _read(path, machine, named=named is not None)
    except ConfigError as error:
        if not of_card or machine.accelerator != NONE:
            raise
        raise ConfigError(
            f"{error.message.rpartition('; ')[0]}, and no accelerator is here that `tandem "
            "profile` could measure; name a card, or use --accelerator none --host measured for "
            "the host alone",
            param="accelerator",
        ) from None


def _facts(profile: "Profile") -> "HostFacts":
    """The host, with the memory that it has now."""
    from tandem.memory.peaks import read_host_memory
    from tandem.profiling.hardware import host_facts

    return host_facts(profile.host, read_host_memory().capacity_bytes, profile.disks)


def _alone(profile: "Profile") -> PlanHardware:
    from tandem.planner.host_alone import host_alone

    basis = (
        f"Predicted from what was measured here on {profile.measured_at}: the host's memory, "
        f"products, attention{_disks(profile)}{_haste(profile)}",
        "assumed: prompts' attention runs at the rate of products, all else at that of memory",
    )
    from tandem.profiling.hardware import measured_host_name

    alone = host_alone(measured_host_name(profile), _facts(profile))
    return PlanHardware(alone, True, profile, basis)


def _measured_host(profile: "Profile", accelerator: str) -> PlanHardware:
    from tandem.profiling.hardware import measured_host_name
    from tandem.spec.hardware import HardwareSpec
    from tandem.spec.hardware_file import load_accelerator

    card, host = load_accelerator(accelerator), measured_host_name(profile)
    spec = HardwareSpec(
        f"{card.name}, {host}", card.accelerator, _link(card, profile), _facts(profile)
    )
    link = "the card's own" if profile.accelerator is None else "no faster than measured here"
    basis = (
        f"Predicted from what was measured here on {profile.measured_at}: the host's memory and "
        f"attention{_disks(profile)}{_haste(profile)}",
        f"assumed, from data sheets and efficiencies: the accelerator and its link ({link})",
    )
    return PlanHardware(spec, False, profile, basis)


def _link(card: "AcceleratorDescription", profile: "Profile") -> "LinkFacts":
    from tandem.profiling.hardware import link_facts

    if profile.accelerator is None:
        return card.link
    measured = link_facts(profile.accelerator)
    return replace(
        card.link,
        h2d_bytes_per_s=min(card.link.h2d_bytes_per_s, measured.h2d_bytes_per_s),
        d2h_bytes_per_s=min(card.link.d2h_bytes_per_s, measured.d2h_bytes_per_s),
    )


def _measured_card(profile: "Profile", host: str) -> PlanHardware:
    from tandem.memory.peaks import read_host_memory
    from tandem.profiling.hardware import accelerator_facts, link_facts, measured_hardware
    from tandem.spec.hardware import HardwareSpec
    from tandem.spec.hardware_file import load_host

    measured = profile.accelerator
    if measured is None:
        reason = next(line for line in profile.skipped if line.startswith("accelerator"))
        raise ConfigError(
            f"the profile has no accelerator ({reason}); use --accelerator none for the host "
            "alone, or name a card",
            param="accelerator",
        )
    also = "assumed: all but maps and attention on the accelerator runs at the rate of its memory"
    if host == MEASURED:
        spec = measured_hardware(profile, read_host_memory().capacity_bytes)
        what = f"the accelerator, its link and the host{_disks(profile)}{_haste(profile)}"
        basis = (f"Predicted from what was measured here on {profile.measured_at}: {what}", also)
        return PlanHardware(spec, False, profile, basis, measured)
    other = load_host(host)
    facts, link = accelerator_facts(measured), link_facts(measured)
    spec = HardwareSpec(f"{measured.name}, {other.name}", facts, link, other.host)
    basis = (
        f"Predicted from what was measured here on {profile.measured_at}: the accelerator and its "
        f"link{_haste(profile)}",
        f"{also}; the host, from data sheets",
        *_note(other),
    )
    return PlanHardware(spec, False, None, basis, measured)


def _disks(profile: "Profile") -> str:
    """Which disk a plan may read layers from."""
    from tandem.spec.units import format_figure

    if not profile.disks:
        return ""
    slowest = min(profile.disks, key=lambda disk: disk.bytes_per_s)
    found = f", the disk of {slowest.folder}"
    if profile.striping is None:
        return found
    rate = format_figure(profile.striping.bytes_per_s / _GIGA)
    return f"{found}, the slowest (all of them at once read {rate} GB/s: --disk {rate}GB/s)"
