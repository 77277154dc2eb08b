"""Machines some of whose rates are not what was assumed: by groups that are wrong together."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Literal

from tandem.planner.footprint import Footprint
from tandem.planner.host_alone import with_host
from tandem.planner.question import Question
from tandem.spec.hardware import HardwareSpec

Number = Literal["GPU rates", "host rates", "link", "disk", "memory rate", "arithmetic"]
ERROR = 0.15
"""Of a rate, by which it is taken to be off."""


def numbers(question: Question) -> tuple[Number, ...]:
    """Groups of rates that a prediction rests on: the card's and the host's unless they were
    measured, since measured times stand in their place; the link's always, and a disk's where not
    all weights fit in memory, as copies and reads are predicted by rates, measured or not.

    On the host alone, where nothing else is, its memory's rate and its arithmetic apart.
    """
    found: list[Number] = []
    alone, host_assumed = question.host_only, question.measured is None
    if question.measured_card is None and not alone:
        found.append("GPU rates")
    if host_assumed and not alone:
        found.append("host rates")
    if host_assumed and alone:
        found += ("memory rate", "arithmetic")
    if not alone:
        found.append("link")
    disk = question.hardware.host.disk_bytes_per_s
    if disk is not None and not Footprint(question).holds_weights:
        found.append("disk")
    return tuple(found)


def with_errors(question: Question, errors: Mapping[Number, float]) -> Question:
    """The question for a machine whose rates are off by these shares; memory is the same."""
    hardware = question.hardware
    for number, error in errors.items():
        hardware = _MOVES[number](hardware, 1 + error)
    return replace(question, hardware=hardware)


def named(errors: Mapping[Number, float]) -> str:
    """In words, as `GPU rates -15%, link +15%`."""
    return ", ".join(f"{number} {error:+.0%}" for number, error in errors.items())


def wrong_machines(question: Question) -> Iterator[tuple[Mapping[Number, float], Question]]:
    """One group at a time, lower and higher; then every two of them together, in all directions."""
    found = numbers(question)
    wrong: list[dict[Number, float]] = [
        {number: error} for error in (-ERROR, ERROR) for number in found
    ]
    for one, other in combinations(found, 2):
        for first, second in product((-ERROR, ERROR), repeat=2):
            wrong.append({one: first, other: second})
    for errors in wrong:
        yield errors, with_errors(question, errors)


def _card(hardware: HardwareSpec, factor: float) -> HardwareSpec:
    accelerator = hardware.accelerator
    moved = replace(
        accelerator,
        memory_bandwidth_bytes_per_s=accelerator.memory_bandwidth_bytes_per_s * factor,
        flops_per_s={dtype: rate * factor for dtype, rate in accelerator.flops_per_s.items()},
    )
    return replace(hardware, accelerator=moved)


def _host(hardware: HardwareSpec, factor: float) -> HardwareSpec:
    host = hardware.host
    shared = host.shared_memory_bandwidth_bytes_per_s
    moved = replace(
        host,
        memory_bandwidth_bytes_per_s=host.memory_bandwidth_bytes_per_s * factor,
        shared_memory_bandwidth_bytes_per_s=None if shared is None else shared * factor,
        flops_per_s=host.flops_per_s * factor,
    )
    return replace(hardware, host=moved)


def _memory_alone(hardware: HardwareSpec, factor: float) -> HardwareSpec:
    host, shared = hardware.host, hardware.host.shared_memory_bandwidth_bytes_per_s
    moved = replace(
        host,
        memory_bandwidth_bytes_per_s=host.memory_bandwidth_bytes_per_s * factor,
        shared_memory_bandwidth_bytes_per_s=None if shared is None else shared * factor,
    )
    return with_host(hardware, moved)


def _arithmetic_alone(hardware: HardwareSpec, factor: float) -> HardwareSpec:
    host = hardware.host
    return with_host(hardware, replace(host, flops_per_s=host.flops_per_s * factor))


def _link(hardware: HardwareSpec, factor: float) -> HardwareSpec:
    link = hardware.link
    moved = replace(
        link,
        h2d_bytes_per_s=link.h2d_bytes_per_s * factor,
        d2h_bytes_per_s=link.d2h_bytes_per_s * factor,
    )
    return replace(hardware, link=moved)


def _disk(hardware: HardwareSpec, factor: float) -> HardwareSpec:
    rate = hardware.host.disk_bytes_per_s
    assert rate is not None, "a machine without a disk has no such number"
    return replace(hardware, host=replace(hardware.host, disk_bytes_per_s=rate * factor))


_MOVES: Mapping[Number, Callable[[HardwareSpec, float], HardwareSpec]] = {
    "GPU rates": _card,
    "host rates": _host,
    "link": _link,
    "disk": _disk,
    "memory rate": _memory_alone,
    "arithmetic": _arithmetic_alone,
}
