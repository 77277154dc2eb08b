"""What people are told about layers that are not resident."""

from collections import Counter
from collections.abc import Sequence

from tandem.engine.weight_placement import WeightSizes
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import WeightPlacement, homes_by_layer, layers_at
from tandem.spec.units import format_size


def weight_notes(
    sizes: WeightSizes, placement: tuple[WeightPlacement, ...], rules: Sequence[CpuRule]
) -> tuple[str, ...]:
    """One line: how many layers lie elsewhere, and what becomes of them; one of how many only the
    MLPs do; none if none do.
    """
    return _layer_notes(sizes, placement, rules) + _mlp_notes(sizes, placement)


def _mlp_notes(sizes: WeightSizes, placement: tuple[WeightPlacement, ...]) -> tuple[str, ...]:
    count = len(layers_at(placement, "cpu-mlp"))
    if not count:
        return ()
    return (
        f"weights: the MLPs of {count} of {sizes.layers} layers ({format_size(count * sizes.mlp)}) "
        "lie in host memory and are computed on the CPU",
    )


def _layer_notes(
    sizes: WeightSizes, placement: tuple[WeightPlacement, ...], rules: Sequence[CpuRule]
) -> tuple[str, ...]:
    homes = Counter(homes_by_layer(placement).values())
    if homes["disk"]:
        size = format_size(sizes.disk_bytes(placement))
        return (
            f"weights: {homes['disk']} of {sizes.layers} layers ({size}) stay on disk and are read "
            "in every step",
        )
    hosted = homes.total() - homes["resident"] - homes["cpu-mlp"]
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
