"""Rates of a CUDA device and its host: measured, from data sheets, or not known. Pure."""

from dataclasses import dataclass, replace

from tandem.profiling.hardware import accelerator_facts, host_facts, link_facts
from tandem.profiling.profile import Profile
from tandem.spec.hardware import HardwareSpec, HostFacts, LinkFacts
from tandem.spec.hardware_file import AcceleratorDescription, find_accelerator, load_host


@dataclass(frozen=True, slots=True)
class Card:
    """What a driver tells of its device."""

    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class HostSize:
    """What there is of a host: memory, cores that may be used, and the disk that weights are on.

    Attributes:
        disk_bytes_per_s: as measured; None: not known.
    """

    memory_bytes: int
    cores: int
    disk_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """By which placements are compared.

    Attributes:
        hardware: None: nothing is known.
        note: where it is from and how to know better, for people.
    """

    hardware: HardwareSpec | None
    note: str


def cuda_rates(card: Card, host: HostSize, profile: Profile | str) -> Rates:
    """From the machine's profile where it has them, else from the card's packaged description.

    Args:
        profile: or why there is none that can be used, and what to do about it.
    """
    if not isinstance(profile, str):
        measured = profile.accelerator
        if measured is not None and measured.name == card.name:
            spec = HardwareSpec(
                card.name, accelerator_facts(measured), link_facts(measured), _here(profile, host)
            )
            return Rates(spec, f"times are predicted from the profile of {profile.measured_at}")
    known = find_accelerator(card.name)
    if known is None:
        return Rates(None, _unknown(card, profile))
    facts = replace(known.accelerator, memory_bytes=card.memory_bytes)
    if not isinstance(profile, str):
        spec = HardwareSpec(card.name, facts, known.link, _here(profile, host))
        return Rates(
            spec,
            f"times are predicted from the profile of {profile.measured_at} for the host, and from "
            f"the data sheet of {known.name}, which it has not measured; run `tandem profile` "
            "where torch can use the device",
        )
    usual = load_host(known.host)
    spec = HardwareSpec(
        card.name, facts, _link(known, usual.slot_bytes_per_s), _assumed(usual.host, host)
    )
    return Rates(
        spec,
        f"times are predicted from data sheets of {known.name} and a usual host ({usual.name}), "
        f"not measured: {profile}",
    )


def _here(profile: Profile, host: HostSize) -> HostFacts:
    facts = host_facts(profile.host, host.memory_bytes)
    return replace(facts, disk_bytes_per_s=host.disk_bytes_per_s)


def _link(known: AcceleratorDescription, slot_bytes_per_s: float) -> LinkFacts:
    return replace(
        known.link,
        h2d_bytes_per_s=min(known.link.h2d_bytes_per_s, slot_bytes_per_s),
        d2h_bytes_per_s=min(known.link.d2h_bytes_per_s, slot_bytes_per_s),
    )


def _assumed(usual: HostFacts, host: HostSize) -> HostFacts:
    """A usual host's rates; of fewer cores, in proportion."""
    share = min(1.0, host.cores / usual.cores) if usual.cores else 1.0
    return HostFacts(
        memory_bytes=host.memory_bytes,
        memory_bandwidth_bytes_per_s=share * usual.memory_bandwidth_bytes_per_s,
        flops_per_s=share * usual.flops_per_s,
        disk_bytes_per_s=host.disk_bytes_per_s,
    )


def _unknown(card: Card, profile: Profile | str) -> str:
    why = profile
    if not isinstance(why, str):
        why = "the profile has not measured it; run `tandem profile` where torch can use the device"
    return (
        f"nothing is known of how fast {card.name} is, so layers that do not fit are streamed, "
        "mixtures' experts computed on the CPU, and requests on the host ride along in every step: "
        f"{why}"
    )
