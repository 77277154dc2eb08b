"""Where the weights are: as the user's file says, or the simplest placement that fits. Pure."""

from pathlib import Path

from tandem.engine.capacities import Capacities
from tandem.engine.disk_choice import (
    check_disk_placement,
    choose_disk_placement,
    least_host_bytes,
)
from tandem.engine.kv_reserve import kv_reserve
from tandem.engine.weight_placement import (
    WeightSizes,
    all_resident,
    choose_placement,
    read_placement,
    refuse_fixed,
)
from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.plan.weights import Home, WeightPlacement
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec


def place_weights(
    config: EngineConfig,
    sizes: WeightSizes,
    room: MemoryBudget,
    capacities: Capacities,
    page: KVPageSpec,
    wanted: int,
    hardware: HardwareSpec | None,
) -> tuple[WeightPlacement, ...]:
    """Of the weights: the user's, or as many resident layers as fit beside the KV cache.

    Args:
        room: where the maths is done, with what others than weights and pages take of it.
        wanted: tokens of the longest request.
        hardware: rates by which a step may choose; None: not known.

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
    home = _home_elsewhere(config, hardware)
    left = room.left_bytes - sizes.least_device_bytes(home)
    if home == "host" and left < reserve.least_bytes:  # no room for layers on their way
        home = "cpu"
        left = room.left_bytes - sizes.least_device_bytes(home)
    host = MemoryBudget("host", capacities.host_bytes)
    return choose_placement(sizes, room, host, reserve.of(left), home)


def _placement_of_file(
    path: Path, sizes: WeightSizes, capacities: Capacities
) -> tuple[WeightPlacement, ...]:
    placement = read_placement(path, sizes.layers)
    check_disk_placement(placement, host_only=capacities.device_location == "host")
    refuse_fixed(sizes, placement)
    if sizes.host_bytes(placement) and not capacities.host_bytes:
        raise ConfigError(
            "layers can be streamed to an accelerator, or computed on the CPU beside it, only "
            "from host memory; use --accelerator cuda or emulated, and --cpu-memory above 0",
            param="placement",
        )
    return placement


def _home_elsewhere(config: EngineConfig, hardware: HardwareSpec | None) -> Home:
    """Of layers that are not resident: what the user wants, or what each step is predicted to."""
    if config.host_layers == "cpu":
        return "cpu"
    return "host" if config.host_layers == "auto" and hardware is not None else "streamed"
