"""Where the weights are: as the user's file says, or the simplest placement that fits. Pure."""

from collections.abc import Callable
from pathlib import Path

from tandem.cost.expert_use import ExpertUse
from tandem.engine.capacities import Capacities
from tandem.engine.disk_choice import (
    choose_beside_accelerator,
    choose_disk_placement,
    least_host_bytes,
)
from tandem.engine.expert_placement import check_experts, split_placements
from tandem.engine.kv_reserve import host_kv, kv_reserve
from tandem.engine.mlp_choice import PlacementTimes
from tandem.engine.placement_file import read_placement
from tandem.engine.weight_placement import (
    WeightSizes,
    all_resident,
    refuse_fixed,
)
from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.plan.weights import Home, WeightPlacement
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError


def place_weights(
    config: EngineConfig,
    sizes: WeightSizes,
    room: MemoryBudget,
    capacities: Capacities,
    page: KVPageSpec,
    wanted: int,
    times: PlacementTimes | None,
    use: ExpertUse | None = None,
) -> tuple[WeightPlacement, ...]:
    """Of the weights: the user's, or as many resident layers as fit beside the KV cache.

    Args:
        room: where the maths is done, with what others than weights and pages take of it.
        wanted: tokens of the longest request.
        times: by which steps choose how layers outside the accelerator are computed, and by which
            that is weighed against their MLPs on the CPU; None: rates are not known, or unwanted.
        use: of experts, as measured; None: not known.

    Raises:
        ConfigError: they do not fit, or the file does not.
    """
    if config.placement is not None:
        return _placement_of_file(Path(config.placement), sizes, capacities)
    on_device = config.strategy == "gpu-only" or config.kv_placement == "device"
    whole = config.max_model_len is not None and (on_device or not capacities.host_bytes)
    reserve = kv_reserve(page, wanted, capacities.device_bytes, whole=whole)
    if capacities.device_location == "host":
        left = room.left_bytes - least_host_bytes(sizes)
        return choose_disk_placement(sizes, room, reserve.of(left))
    if not capacities.host_bytes:
        return all_resident(sizes.layers)
    home = _home_elsewhere(config, times)
    left = room.left_bytes - sizes.least_device_bytes(home)
    if home == "host" and left < reserve.least_bytes:  # no room for layers on their way
        home = "cpu"
        left = room.left_bytes - sizes.least_device_bytes(home)
    host, kv_bytes = MemoryBudget("host", capacities.host_bytes), reserve.of(left)
    kv = host_kv(config, page, wanted)

    def with_home(chosen: Home) -> tuple[WeightPlacement, ...]:
        return choose_beside_accelerator(sizes, room, host, kv_bytes, kv, chosen)

    def split(mlps: tuple[WeightPlacement, ...]) -> list[tuple[WeightPlacement, ...]]:
        known = use or (None if times is None else times.use)
        if known is None:
            return []
        return list(split_placements(sizes, room, host, kv_bytes, kv, mlps, known))

    try:
        whole = with_home(home)
    except ConfigError:
        others: tuple[Home, ...] = ("cpu-mlp", "cpu") if times is not None else ()
        found = _first_that_fits(with_home, others)
        if times is None or found is None:
            raise
        return times.choose(found, *split(found))
    if whole == all_resident(sizes.layers):
        return whole
    if times is None:  # what was asked for, and of its MLPs the experts that were counted most
        return [whole, *(split(whole) if home == "cpu-mlp" else ())][-1]
    # no room for the rest of every layer, or for the MLPs in host memory: None
    mlps = _first_that_fits(with_home, ("cpu-mlp",))
    return whole if mlps is None else times.choose(whole, mlps, *split(mlps))


def _first_that_fits(
    with_home: Callable[[Home], tuple[WeightPlacement, ...]], homes: tuple[Home, ...]
) -> tuple[WeightPlacement, ...] | None:
    for home in homes:
        try:
            return with_home(home)
        except ConfigError:
            continue
    return None


def _placement_of_file(
    path: Path, sizes: WeightSizes, capacities: Capacities
) -> tuple[WeightPlacement, ...]:
    host_only = capacities.device_location == "host"
    placement = read_placement(path, sizes.layers, host_only=host_only)
    refuse_fixed(sizes, placement)
    check_experts(sizes, placement)
    on_disk = 0 if host_only else sizes.disk_bytes(placement)
    if sizes.host_bytes(placement) + on_disk and not capacities.host_bytes:
        raise ConfigError(
            "layers can be streamed to an accelerator, or computed on the CPU beside it, only "
            "from host memory; use --accelerator cuda or emulated, and --cpu-memory above 0",
            param="placement",
        )
    return placement


def _home_elsewhere(config: EngineConfig, times: PlacementTimes | None) -> Home:
    """Of layers that are not resident: what the user wants, or what each step is predicted to."""
    if config.host_layers in ("cpu", "mlp"):
        return "cpu" if config.host_layers == "cpu" else "cpu-mlp"
    return "streamed" if times is None else "host"
