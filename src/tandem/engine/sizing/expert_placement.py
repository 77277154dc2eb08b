"""Which single experts are resident on the accelerator, where others are in host memory. Pure."""

from collections.abc import Iterable, Iterator

from tandem.cost.expert_use import ExpertUse
from tandem.engine.sizing.kv_reserve import HostKV
from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.memory.budget import MemoryBudget
from tandem.plan.weights import (
    MLPS_APART,
    Home,
    WeightPlacement,
    as_runs,
    homes_by_layer,
    resident_experts,
)
from tandem.spec.errors import ConfigError

Placement = tuple[WeightPlacement, ...]


def check_experts(sizes: WeightSizes, placements: Placement) -> None:
    """Single experts that the model does not have, or all of a layer's.

    Raises:
        ConfigError: there are some.
    """
    for layer, experts in resident_experts(placements).items():
        reason = None
        if not sizes.experts:
            reason = "the model has none; leave 'experts' out"
        elif not 0 <= experts[0] <= experts[-1] < sizes.experts:
            reason = f"there are experts 0 to {sizes.experts - 1}"
        elif len(experts) == sizes.experts:
            reason = "those are all; give the layer home 'resident'"
        if reason is not None:
            raise ConfigError(
                f"layer {layer} cannot have experts {_short(experts)} on the accelerator: {reason}",
                param="placement",
            )


def _short(experts: tuple[int, ...]) -> str:
    few = ", ".join(str(expert) for expert in experts[:4])
    return few if len(experts) <= 4 else f"{few}, ..."


def void_hits(placements: Placement) -> tuple[str, ...]:
    """A note if experts were counted, and none of them is placed by that."""
    if resident_experts(placements):
        return ()
    homes = set(homes_by_layer(placements).values())
    reason = "whole layers leave the accelerator, not experts"
    if homes == {"resident"}:
        reason = "all experts fit on the accelerator"
    elif homes & set(MLPS_APART):
        reason = "MLPs leave the accelerator whole, for want of room or as predicted times say"
    return (f"--expert-hits has no effect: {reason}",)


def split_placements(
    sizes: WeightSizes,
    device: MemoryBudget,
    host: MemoryBudget,
    kv_bytes: int,
    kv: HostKV,
    bases: Iterable[Placement],
    use: ExpertUse,
) -> Iterator[Placement]:
    """Placements with single experts on the accelerator, the most used ones first: each of `bases`
    with what it leaves of the accelerator's memory filled. Those that do not fit are left out.

    Args:
        device, host: capacity, and what others than weights and the KV cache take of it.
        kv_bytes: of the accelerator's memory, to be left to the KV cache.
        kv: to be left of host memory.
        bases: whole mixtures of them are in host memory.
        use: of experts, by which they are chosen; of equal ones, as many in each layer.
    """
    if not sizes.experts:
        return
    for base in bases:
        filled = _filled(sizes, base, device.left_bytes - kv_bytes, use)
        kv_left = device.left_bytes - sizes.device_bytes(filled)
        fits = sizes.host_bytes(filled) + kv.least_bytes(kv_left) <= host.left_bytes
        if filled != base and fits:
            yield filled


def _filled(sizes: WeightSizes, base: Placement, most_bytes: int, use: ExpertUse) -> Placement:
    """With as many experts of mixtures apart as go into `most_bytes` beside all else that weights
    take. The fewer experts are left in a layer, the smaller are the slots that they come through,
    and the more experts may stay.
    """
    found, room = base, most_bytes - sizes.device_bytes(base)
    ranked = _hottest([n for n, home in homes_by_layer(base).items() if home in MLPS_APART], use)
    while True:
        filled = _with_experts(sizes, base, room, ranked)
        left = most_bytes - sizes.device_bytes(filled)
        if left < 0 or sizes.mlps_bytes(filled) >= sizes.mlps_bytes(found):
            return found
        found, room = filled, room + left


def _with_experts(
    sizes: WeightSizes, base: Placement, room: int, ranked: list[tuple[int, int]]
) -> Placement:
    """With the first of `ranked` layers and their experts that go into `room` bytes."""
    chosen: dict[int, set[int]] = {}
    for layer, expert in ranked:
        size = sizes.expert + (0 if layer in chosen else sizes.router)
        if size > room:
            if layer in chosen:
                break
            continue  # no room for another router, perhaps for an expert
        room -= size
        chosen.setdefault(layer, set()).add(expert)
    whole = {layer for layer, experts in chosen.items() if len(experts) == sizes.experts}
    homes = homes_by_layer(base)
    by_layer: list[Home] = [
        "resident" if layer in whole else homes[layer] for layer in range(sizes.layers)
    ]
    experts = {layer: tuple(sorted(ids)) for layer, ids in chosen.items() if layer not in whole}
    return as_runs(by_layer, experts)


def _hottest(layers: Iterable[int], use: ExpertUse) -> list[tuple[int, int]]:
    """Layers and their experts, the most used first."""
    ranked = [
        (-share, rank, layer, expert)
        for layer in layers
        for rank, (share, expert) in enumerate(_by_share(use.shares[layer]))
    ]
    return [(layer, expert) for _, _, layer, expert in sorted(ranked)]


def _by_share(shares: tuple[float, ...]) -> list[tuple[float, int]]:
    order = sorted(range(len(shares)), key=lambda expert: (-shares[expert], expert))
    return [(shares[expert], expert) for expert in order]
