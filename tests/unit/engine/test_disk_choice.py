"""Which layers host memory holds, and what is said when not even the slots fit."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tandem.engine.sizing.disk_choice import choose_beside_accelerator, choose_disk_placement
from tandem.engine.sizing.kv_reserve import HostKV
from tandem.engine.sizing.weight_placement import WeightSizes, all_resident, choose_placement
from tandem.memory.budget import MemoryBudget
from tandem.plan.disk_slots import slots_bytes
from tandem.plan.weights import (
    MLPS_APART,
    STREAM_SLOTS,
    Home,
    WeightPlacement,
    disk_layers,
    homes_by_layer,
    streamed_layers,
)
from tandem.spec.errors import ConfigError
from tandem.spec.units import MIB


@given(
    layers=st.integers(1, 90),
    layer=st.integers(1, 64 * MIB),
    outside=st.integers(0, 100 * MIB),
    used=st.integers(0, 100 * MIB),
    kv=st.integers(1, 100 * MIB),
    capacity=st.integers(0, 8192 * MIB),
)
def test_the_most_layers_that_fit_are_in_memory(
    layers: int, layer: int, outside: int, used: int, kv: int, capacity: int
) -> None:
    sizes = WeightSizes(layer, layers, outside)
    slots = slots_bytes(layer)
    least = outside + used + kv + min(slots, layers * layer)
    host = MemoryBudget("host", capacity, {"workspace": used})
    if capacity < least:
        with pytest.raises(ConfigError, match="even with every layer read from disk") as error:
            choose_disk_placement(sizes, host, kv)
        assert error.value.param == "cpu_memory"
        choose_disk_placement(sizes, replace(host, capacity_bytes=least), kv)
        return
    placement = choose_disk_placement(sizes, host, kv)
    assert sorted(homes_by_layer(placement)) == list(range(layers))
    on_disk = disk_layers(placement)
    taken = sizes.device_bytes(placement) + (slots if on_disk else 0)
    assert taken + used + kv <= capacity
    if not on_disk:
        assert placement == all_resident(layers)
        return
    assert outside + layers * layer + used + kv > capacity
    assert len(on_disk) == layers or taken + layer + used + kv > capacity
    gaps = [b - a for a, b in pairwise(on_disk)]
    assert not gaps or max(gaps) - min(gaps) <= 1


@given(st.integers(1, 40), st.integers(0, 40))
def test_the_disk_and_memory_hold_every_layer_once(layers: int, on_disk: int) -> None:
    assume(on_disk <= layers)
    sizes = WeightSizes(1000, layers, 0)
    placement = (WeightPlacement(0, on_disk - 1, "disk"),) if on_disk else ()
    assert sizes.disk_bytes(placement) + sizes.device_bytes(placement) == layers * 1000


@given(
    layers=st.integers(1, 60),
    layer=st.integers(1, 16 * MIB),
    resident=st.floats(0, 1.2),
    hosted=st.floats(0, 1.2),
    kv=st.integers(1, 4 * MIB),
    request=st.integers(0, 640),
    home=st.sampled_from(["streamed", "host", "cpu"]),
)
def test_beside_an_accelerator_memory_is_full_before_the_disk_is_used(
    layers: int, layer: int, resident: float, hosted: float, kv: int, request: int, home: Home
) -> None:
    sizes, needs = WeightSizes(layer, layers, 1000), HostKV(request, 1 << 15, 1 << 16)
    slots = STREAM_SLOTS + layers % 2
    device = MemoryBudget("device", 1000 + kv + int((resident * layers + slots) * layer))
    host = MemoryBudget("host", int(hosted * layers * layer))
    try:
        placement = choose_beside_accelerator(sizes, device, host, kv, needs, home)
    except ConfigError as error:
        assume(error.param == "cpu_memory")  # else the accelerator has no room for slots
        # every layer and all of the request
        enough = slots_bytes(layer) + layers * layer + request * needs.block_bytes
        choose_beside_accelerator(
            sizes, device, replace(host, capacity_bytes=enough), kv, needs, home
        )
        return
    homes = homes_by_layer(placement)
    assert sorted(homes) == list(range(layers))
    left = device.capacity_bytes - sizes.device_bytes(placement)
    assert left >= kv
    on_disk = len(disk_layers(placement))
    brought = disk_layers(placement) if home != "cpu" else ()
    assert streamed_layers(placement).on_disk == brought
    taken = sizes.host_bytes(placement) + (slots_bytes(layer) if on_disk else 0)
    kept = needs.least_bytes(left)
    if not on_disk:
        assert placement == choose_placement(sizes, device, kv, home)
        assert not taken or taken + kept <= host.capacity_bytes
        return
    assert taken + kept <= host.capacity_bytes
    assert taken + layer + kept > host.capacity_bytes


def test_kv_in_host_memory_is_what_the_accelerator_has_no_room_for() -> None:
    needs = HostKV(10, 60, 100)  # blocks are smaller there
    left = [needs.least_bytes(size) for size in (0, 99, 100, 950, 5000)]
    assert left == [600, 600, 540, 60, 0]
    assert replace(needs, beside_device=False).least_bytes(5000) == 600


@given(
    layers=st.integers(1, 60),
    layer=st.integers(1024, 16 * MIB),
    mlp_share=st.floats(0.1, 0.95),
    resident=st.floats(0, 1.2),
    hosted=st.floats(0, 1.2),
    kv=st.integers(1, 4 * MIB),
    request=st.integers(0, 640),
    home=st.sampled_from(MLPS_APART),
)
def test_mlps_in_host_memory_and_layers_on_disk_fit_both_memories(
    layers: int,
    layer: int,
    mlp_share: float,
    resident: float,
    hosted: float,
    kv: int,
    request: int,
    home: Home,
) -> None:
    """Layers whose MLPs alone are elsewhere leave something on the accelerator."""
    sizes = WeightSizes(layer, layers, 1000, mlp=int(layer * mlp_share))
    needs = HostKV(request, 1 << 15, 1 << 16)
    slots = STREAM_SLOTS + layers % 2
    device = MemoryBudget("device", 1000 + kv + int((resident * layers + slots) * layer))
    host = MemoryBudget("host", int(hosted * layers * layer))
    try:
        placement = choose_beside_accelerator(sizes, device, host, kv, needs, home)
    except ConfigError:
        return
    left = device.capacity_bytes - sizes.device_bytes(placement)
    assert left >= kv
    taken = sizes.host_bytes(placement) + (slots_bytes(layer) if disk_layers(placement) else 0)
    if taken:
        assert taken + needs.least_bytes(left) <= host.capacity_bytes
