"""Which layers host memory holds, and which are read from disk. Pure."""

from tandem.engine.sizing.kv_reserve import HostKV
from tandem.engine.sizing.weight_placement import (
    WeightSizes,
    all_resident,
    choose_placement,
)
from tandem.memory.budget import MemoryBudget
from tandem.plan.disk_slots import slots_bytes
from tandem.plan.weights import MLPS_APART, Home, WeightPlacement
from tandem.spec.errors import ShortOfMemoryError


def choose_disk_placement(
    sizes: WeightSizes, host: MemoryBudget, kv_bytes: int
) -> tuple[WeightPlacement, ...]:
    """As many resident layers as fit; the others stay on disk, spread evenly among them, so that
    they are read while resident ones compute.

    Args:
        host: capacity, and what others than weights and the KV cache take of it.
        kv_bytes: to be left to the KV cache.

    Raises:
        ShortOfMemoryError: not even reading every layer from disk would fit.
    """
    left = host.left_bytes - kv_bytes - sizes.outside
    if left >= sizes.movable * sizes.layer:
        return all_resident(sizes.layers)
    slots = slots_bytes(sizes.layer)
    if left < slots:
        needed = {
            "embeddings, head and norms": sizes.outside,
            "layers on their way": _least_layer_bytes(sizes),
            "KV cache": kv_bytes,
        }
        raise host.shortage(" even with every layer read from disk", needed)
    resident = min(sizes.movable, (left - slots) // sizes.layer)
    return sizes.spread(sizes.movable - resident, "disk")


def least_host_bytes(sizes: WeightSizes) -> int:
    """What weights take of the host's memory with as many layers on disk as can be."""
    return sizes.outside + _least_layer_bytes(sizes)


def choose_beside_accelerator(
    sizes: WeightSizes,
    device: MemoryBudget,
    host: MemoryBudget,
    kv_bytes: int,
    kv: HostKV,
    home: Home = "streamed",
) -> tuple[WeightPlacement, ...]:
    """The accelerator first, then host memory, with `home`; what fits in neither is streamed from
    disk, or with home `cpu` read and computed on the CPU.

    Args:
        device, host: capacity, and what others than weights and the KV cache take of it.
        kv_bytes: of the accelerator's memory, to be left to the KV cache.
        kv: to be left of host memory.

    Raises:
        ShortOfMemoryError: not even with as many layers on disk as can be.
    """
    held = choose_placement(sizes, device, kv_bytes, home)
    kept = _kept(sizes, device, held, kv)
    hosted = sizes.host_bytes(held)
    if not hosted or hosted + kept <= host.left_bytes:
        return held
    # layers on disk need slots of whole layers on the accelerator beside MLPs that are not there
    whole = home not in MLPS_APART
    slotted = held if whole else choose_placement(sizes, device, kv_bytes, "disk_streamed")
    slots, elsewhere = sizes.disk_slots, sizes.elsewhere(slotted)
    slotted_kept = _kept(sizes, device, slotted, kv)
    beside = slots + slotted_kept
    for count in range(elsewhere, sizes.movable + 1):
        # what `home` leaves of its layers on the accelerator may take the place of others; the more
        # layers are elsewhere, the more KV lies on the accelerator
        if whole:
            beside = slots + _kept(sizes, device, sizes.spread(count, home), kv)
        if host.left_bytes < beside:
            continue
        on_disk = max(0, count - (host.left_bytes - beside) // sizes.moved(home))
        if on_disk > count:
            break
        placement = sizes.spread(count, home, on_disk)
        host_bytes = sizes.host_bytes(placement) + slots + _kept(sizes, device, placement, kv)
        fits = sizes.device_bytes(placement) + kv_bytes <= device.left_bytes
        if fits and host_bytes <= host.left_bytes:
            return placement
    if host.left_bytes < slots + slotted_kept:
        raise _host_too_small(host, (slots, slotted_kept), (hosted, kept))
    return slotted


def _kept(
    sizes: WeightSizes, device: MemoryBudget, placement: tuple[WeightPlacement, ...], kv: HostKV
) -> int:
    """KV in host memory: what the accelerator cannot take beside its weights."""
    return kv.least_bytes(device.left_bytes - sizes.device_bytes(placement))


def _host_too_small(
    host: MemoryBudget, from_disk: tuple[int, int], in_memory: tuple[int, int]
) -> ShortOfMemoryError:
    """Of two ways to keep layers, bytes of layers and of KV: what takes less is told."""
    labels, sizes = ("layers on their way", "KV cache"), from_disk
    if sum(in_memory) < sum(from_disk):
        labels, sizes = ("layers in host memory", "KV cache"), in_memory
    even = " even to read from disk the layers that do not fit on the accelerator"
    return host.shortage(even, dict(zip(labels, sizes, strict=True)))


def _least_layer_bytes(sizes: WeightSizes) -> int:
    # of the two ways to fit, a small model's is to keep everything
    return min(slots_bytes(sizes.layer), sizes.movable * sizes.layer)
