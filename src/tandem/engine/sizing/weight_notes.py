"""What people are told about layers that are not resident."""

from collections import Counter
from collections.abc import Sequence

from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import (
    HOSTED,
    ON_DISK,
    Home,
    WeightPlacement,
    homes_by_layer,
    layers_at,
    resident_experts,
)
from tandem.spec.config import EngineConfig
from tandem.spec.units import format_size


def weight_notes(
    sizes: WeightSizes, placement: tuple[WeightPlacement, ...], rules: Sequence[CpuRule]
) -> tuple[str, ...]:
    """How many layers lie elsewhere, and what becomes of them: a line for those in host memory, one
    for those on disk, and one for those of which only the MLPs are in host memory; one for
    embeddings there.
    """
    homes = Counter(homes_by_layer(placement).values())
    on_disk, mlps = sum(homes[home] for home in ON_DISK), homes["cpu-mlp"] + homes["host-mlp"]
    notes = list(_host_notes(sizes, homes, _of(rules, layers_at(placement, "host"))))
    if on_disk:
        size = format_size(sizes.disk_bytes(placement))
        notes.append(
            f"weights: {on_disk} of {sizes.layers} layers ({size}) stay on disk"
            f"{_disk_fate(homes, direct=sizes.direct)} in every step"
        )
    if mlps:
        size = format_size(sizes.mlps_bytes(placement))
        fate = _mlps_fate(homes, _of(rules, layers_at(placement, "host-mlp")))
        parts = fate, _experts_note(sizes, placement)
        if homes["host-mlp"]:  # the fate is a list, after which nothing else would be understood
            parts = parts[::-1]
        notes.append(
            f"weights: the MLPs of {mlps} of {sizes.layers} layers ({size}) lie in host memory"
            + "".join(parts)
        )
    if sizes.hosted_embedding:
        notes.append(
            f"weights: the token embeddings ({format_size(sizes.hosted_embedding)}) lie in host "
            "memory, from which the accelerator reads a row for each token"
        )
    return tuple(notes)


def void_host_layers(
    config: EngineConfig, placement: tuple[WeightPlacement, ...]
) -> tuple[str, ...]:
    """A note if it was said what becomes of layers without room, and there are none."""
    elsewhere = set(homes_by_layer(placement).values()) - {"resident"}
    if config.host_layers == "auto" or elsewhere:
        return ()
    return (f"--host-layers {config.host_layers} has no effect: all layers are resident",)


def _of(rules: Sequence[CpuRule], layers: tuple[int, ...]) -> list[CpuRule]:
    """The same rules as far as they name these layers; none where they never do."""
    found = [
        CpuRule(rule.max_tokens, tuple(layer for layer in rule.layers if layer in layers))
        for rule in rules
    ]
    while found and not found[-1].layers:
        found.pop()
    return found


def _disk_fate(homes: Counter[Home], *, direct: bool) -> str:
    if homes["disk-cpu"] and homes["disk_streamed"]:
        return (
            f"; {homes['disk_streamed']} are streamed to the accelerator through host memory and "
            f"{homes['disk-cpu']} are read and computed on the CPU"
        )
    if homes["disk-cpu"]:
        return " and are read and computed on the CPU"
    through = "past" if direct else "through"
    how = "read" if homes["disk"] else f"streamed to the accelerator {through} host memory"
    return f" and are {how}"


def _mlps_fate(homes: Counter[Home], rules: Sequence[CpuRule]) -> str:
    if not homes["host-mlp"]:
        return " and are computed on the CPU"
    fates = [f"{homes['cpu-mlp']} are computed on the CPU"] if homes["cpu-mlp"] else []
    if rules:
        fates.append(f"of {homes['host-mlp']} {_describe(rules)}")
    else:
        fates.append(f"{homes['host-mlp']} are streamed to the accelerator in every step")
    return f"; {', '.join(fates)}"


def _experts_note(sizes: WeightSizes, placement: tuple[WeightPlacement, ...]) -> str:
    single = resident_experts(placement)
    if not single:
        return ""
    count = sum(map(len, single.values()))
    return (
        f", but for {count} experts ({format_size(count * sizes.expert)}) of {len(single)} layers, "
        "which the accelerator computes"
    )


def _host_notes(
    sizes: WeightSizes, homes: Counter[Home], rules: Sequence[CpuRule]
) -> tuple[str, ...]:
    hosted = sum(homes[home] for home in HOSTED)
    if not hosted:
        return ()
    by_step = homes["host"] if rules else 0
    streamed = homes["streamed"] + homes["host"] - by_step
    fates: list[str] = []
    if homes["cpu"]:
        fates.append(f"{homes['cpu']} are computed on the CPU")
    if streamed:
        fates.append(f"{streamed} are streamed to the accelerator in every step")
    if by_step:
        fates.append(f"of {by_step} {_describe(rules)}")
    size = format_size(hosted * sizes.layer)
    return (
        f"weights: {hosted} of {sizes.layers} layers ({size}) lie in host memory; "
        f"{', '.join(fates)}",
    )


def _describe(rules: Sequence[CpuRule]) -> str:
    parts = [
        f"{len(rule.layers)} in steps of up to {rule.max_tokens} "
        f"token{'s' if rule.max_tokens > 1 else ''}"
        for rule in rules
    ]
    return f"the CPU computes {', '.join(parts)}, and the others are streamed, in larger steps all"
