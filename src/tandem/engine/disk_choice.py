"""Which layers the host alone keeps in memory, and which it reads from disk. Pure."""

from tandem.engine.weight_placement import WeightSizes, all_resident, at_least
from tandem.memory.budget import MemoryBudget
from tandem.plan.disk_slots import slots_bytes
from tandem.plan.weights import WeightPlacement, disk_layers
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size


def choose_disk_placement(
    sizes: WeightSizes, host: MemoryBudget, kv_bytes: int
) -> tuple[WeightPlacement, ...]:
    """As many resident layers as fit; the others stay on disk, spread evenly among them, so that
    they are read while resident ones compute.

    Args:
        host: capacity, and what others than weights and the KV cache take of it.
        kv_bytes: to be left to the KV cache.

    Raises:
        ConfigError: not even reading every layer from disk would fit.
    """
    left = host.left_bytes - kv_bytes - sizes.outside
    if left >= sizes.movable * sizes.layer:
        return all_resident(sizes.layers)
    slots = slots_bytes(sizes.layer)
    if left < slots:
        raise ConfigError(_too_small(sizes, host, kv_bytes), param="cpu_memory")
    resident = min(sizes.movable, (left - slots) // sizes.layer)
    return sizes.spread(sizes.movable - resident, "disk")


def least_host_bytes(sizes: WeightSizes) -> int:
    """What weights take of the host's memory with as many layers on disk as can be."""
    return sizes.outside + _least_layer_bytes(sizes)


def check_disk_placement(placement: tuple[WeightPlacement, ...], *, host_only: bool) -> None:
    """Refuse layers on disk beside an accelerator.

    Raises:
        ConfigError: says what to write instead.
    """
    if disk_layers(placement) and not host_only:
        raise ConfigError(
            "layers can be on disk only where the host computes them; use --accelerator none, or "
            "home 'streamed'",
            param="placement",
        )


def _too_small(sizes: WeightSizes, host: MemoryBudget, kv_bytes: int) -> str:
    layers = _least_layer_bytes(sizes)
    used = sum(host.used_bytes.values())
    needed = sizes.outside + layers + kv_bytes + used
    return (
        f"host memory too small even with every layer read from disk: embeddings, head and norms "
        f"{format_size(sizes.outside)} + layers on their way {format_size(layers)} + KV cache "
        f"{format_size(kv_bytes)} + {host.describe_used()}; {format_size(needed)} needed, "
        f"{format_size(host.capacity_bytes)} there; use --host-memory {at_least(needed)} or more, "
        "or lower --max-model-len or --max-num-batched-tokens"
    )


def _least_layer_bytes(sizes: WeightSizes) -> int:
    # of the two ways to fit, a small model's is to keep everything
    return min(slots_bytes(sizes.layer), sizes.movable * sizes.layer)
